// Addresses of pages: `#/application/app-1?partition=default`. They can be kept, sent and opened in another tab.

import { useEffect, useState } from "./html.js";

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [page = "", ...args] = path.split("/").map(decode);
  return { page: page || "overview", args, params: Object.fromEntries(new URLSearchParams(query)) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The page that is shown: {page, args, params}. */
export function useRoute() {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const listener = () => setRoute(parse(location.hash));
    addEventListener("hashchange", listener);
    return () => removeEventListener("hashchange", listener);
  }, []);
  return route;
}

/** The address of a page of the same partition; parameters without a value are left out. */
export function to(page, args = [], params = {}) {
  const { partition } = parse(location.hash).params;
  const all = { ...(partition ? { partition } : {}), ...params };
  const query = new URLSearchParams(Object.entries(all).filter(([, value]) => value !== "" && value !== undefined));
  const path = [page, ...args].map(encodeURIComponent).join("/");
  return `#/${path}${query.size ? `?${query}` : ""}`;
}

/** Change parameters of the page that is shown, without a new entry in the history of the browser. */
export function setParams(changed) {
  const { page, args, params } = parse(location.hash);
  history.replaceState(null, "", to(page, args, { ...params, ...changed }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function go(address) {
  location.hash = address;
}
