// The view library in one place: components import everything from here.

import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { render } from "./vendor/preact.js";
export { useCallback, useEffect, useId, useMemo, useRef, useState } from "./vendor/hooks.js";

export const html = htm.bind(h);
