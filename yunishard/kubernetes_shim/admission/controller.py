"""The admission controller: an HTTPS server for the API server, and a loop that keeps what the webhooks need.

The loop reads the secret with the authorities, renews them and the server's certificate, and writes the configurations
of the webhooks and the policy that guards users if they differ. All of this can be repeated at any time, so it also
repairs what others have changed, and several controllers can run side by side.

Not here: decisions (`mutations.py`, `validation.py`), the command line (`command.py`).
"""

import asyncio
import base64
import binascii
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import aiohttp
import msgspec
from aiohttp import web
from msgspec.structs import replace

from yunishard.common.process.logs import LogLevels
from yunishard.kubernetes_shim.admission.certificates import (
    ServerCertificate,
    create_server_certificate,
    join_certificates,
    read_authorities,
    renew_authorities,
)
from yunishard.kubernetes_shim.admission.mutations import Surroundings, review
from yunishard.kubernetes_shim.admission.registrations import (
    HEALTH_PATH,
    MUTATE_PATH,
    POLICY,
    VALIDATE_PATH,
    Endpoint,
    Registration,
    describe_policies,
    describe_webhooks,
)
from yunishard.kubernetes_shim.admission.reviews import (
    ADMITTED,
    AdmissionRequest,
    ReviewError,
    Verdict,
    decode_review,
    encode_review,
)
from yunishard.kubernetes_shim.admission.users import Access
from yunishard.kubernetes_shim.admission.validation import (
    CoreVerdict,
    find_configuration,
    find_data,
    judge,
)
from yunishard.kubernetes_shim.client import KubernetesClient, KubernetesError
from yunishard.kubernetes_shim.kubeconfig import load_pair
from yunishard.kubernetes_shim.metrics import AdmissionMetrics, answer_health, open_port
from yunishard.kubernetes_shim.objects import (
    CONFIG_MAPS,
    NAMESPACES,
    PRIORITY_CLASSES,
    SECRETS,
    ConfigMap,
    Namespace,
    Object,
    ObjectEvent,
    PriorityClass,
)
from yunishard.kubernetes_shim.process import list_ineffective_keys, read_first_settings
from yunishard.kubernetes_shim.reflector import Reflector
from yunishard.kubernetes_shim.settings import (
    CONFIG_MAPS_READ,
    AdmissionSettings,
    Settings,
    SettingsError,
    read_config_maps,
    read_settings,
)

SECRET: Final = "admission-controller-secrets"  # noqa: S105 - its name

RECONCILE_S: Final = 60.0
"""Seconds between two looks at the secret, the configurations of the webhooks and the policy, unless the settings
change."""

BODY_BYTES_MAX: Final = 8 << 20
"""Bytes of a request. A longer one is refused (413), and the API server continues without an answer. It accepts objects
of up to 3 MiB, and sends a changed one together with the former one."""

CORE_S_MAX: Final = 4.0
"""Seconds for the core to validate a configuration: less than the API server waits. Then it is admitted unchecked."""

STOP_S_MAX: Final = 5.0
"""Seconds for requests in progress at the end."""

_log = logging.getLogger("admission.controller")

_O = TypeVar("_O", bound=Object)

Decide = Callable[[AdmissionRequest], Awaitable[Verdict]]


@dataclass(frozen=True, slots=True)
class Options:
    """The command line of the controller."""

    namespace: str
    """Where the config maps, the secret and the service are."""
    listen: str
    """HOST:PORT of the webhooks."""
    url: str = ""
    """Where the API server reaches this controller, in place of the service."""
    core: str = ""
    """The REST port of the core, in place of the one in the settings, such as `https://core:9080`."""
    core_ca: Path | None = None
    core_token_file: Path | None = None
    shim_user: str = ""
    """The user as whom the shim creates placeholders."""


class AdmissionController:
    """One controller."""

    def __init__(self, client: KubernetesClient, options: Options, metrics: AdmissionMetrics | None = None) -> None:
        self._client, self._options = client, options
        self.metrics = metrics or AdmissionMetrics()
        self._settings: Settings | None = None
        self._maps: dict[str, ConfigMap] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._priority_classes: dict[str, PriorityClass] = {}
        self._levels = LogLevels("admission", "kubernetes")
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._certificate: ServerCertificate | None = None
        self._settings_changed = asyncio.Event()
        self._policy_problem = ""
        self._core = _Core(options.core_ca, options.core_token_file, self.metrics)

    async def run(self, on_ready: Callable[[int], None]) -> None:
        """Serve until cancelled; `on_ready` gets the port.

        Raises:
            ListenFailed: the port cannot be opened.
            ExceptionGroup: of a SettingsError, as the settings cannot be read at the start, or of a KubernetesError, as
                the API server refuses what the controller needs at the start.
        """
        runner = web.AppRunner(self._build_application(), access_log=None, shutdown_timeout=STOP_S_MAX)
        await runner.setup()
        try:
            await open_port(
                runner, self._options.listen, option="--listen", tls=self._tls
            )  # without a certificate yet, so no request gets through
            async with asyncio.TaskGroup() as tasks:
                reflectors = self._build_reflectors()
                for reflector in reflectors:
                    tasks.create_task(reflector.run())
                for reflector in reflectors:
                    await reflector.listed.wait()
                self._settings = read_first_settings(read_config_maps(self._maps), self._options.namespace)
                self._levels.apply(self._settings.extra_config)
                await self._reconcile()
                tasks.create_task(self._keep_reconciling())
                on_ready(int(runner.addresses[0][1]))
        finally:
            await runner.cleanup()

    # Objects ----------------------------------------------------------------------------------------------------------

    def _build_reflectors(self) -> list[Reflector[ConfigMap] | Reflector[Namespace] | Reflector[PriorityClass]]:
        def receive_map(event: ObjectEvent, found: ConfigMap) -> None:
            if found.metadata.name in CONFIG_MAPS_READ:
                _keep(self._maps, event, found)

        return [
            Reflector(
                self._client,
                CONFIG_MAPS,
                receive_map,
                after_batch=self._refresh_settings,
                namespace=self._options.namespace,
            ),
            Reflector(self._client, NAMESPACES, lambda event, found: _keep(self._namespaces, event, found)),
            Reflector(
                self._client,
                PRIORITY_CLASSES,
                lambda event, found: _keep(self._priority_classes, event, found),
            ),
        ]

    def _refresh_settings(self) -> None:
        """Read the settings again after a change."""
        if self._settings is None or not self._settings.enable_config_hot_refresh:
            return
        try:
            found = read_settings(read_config_maps(self._maps), current=self._settings)
        except SettingsError as error:
            _log.error("the settings in force stay, because the new ones cannot be read: %s", error)
            return
        if found != self._settings:
            _log.info("the settings have changed")
            self._settings = found
            self._levels.apply(found.extra_config)
            self._settings_changed.set()

    # Certificates and webhooks ----------------------------------------------------------------------------------------

    async def _keep_reconciling(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._settings_changed.wait(), RECONCILE_S)
            self._settings_changed.clear()
            try:
                await self._reconcile()
            except (KubernetesError, OSError) as error:
                _log.error("the webhooks cannot be checked: %s; trying again in %g s", error, RECONCILE_S)

    async def _reconcile(self) -> None:
        assert self._settings is not None
        now = time.time()
        service = self._settings.admission.service_name
        endpoint = Endpoint(self._options.namespace, service, self._options.url)
        authorities = read_authorities(await self._read_secret(now), now)
        if self._certificate is None or self._certificate.is_due(authorities, endpoint.names(), now):
            self._certificate = create_server_certificate(authorities, endpoint.names(), now)
            load_pair(self._tls, self._certificate.certificate, self._certificate.key)
            _log.info("there is a new certificate for %s", ", ".join(endpoint.names()))
        self.metrics.ends_at.labels("server").set(self._certificate.ends_at)
        self.metrics.ends_at.labels("authority").set(min(one.ends_at for one in authorities))
        for wanted in describe_webhooks(endpoint, join_certificates(authorities)):
            await self._write(wanted)
        await self._write_policies(self._settings.admission)

    async def _write_policies(self, settings: AdmissionSettings) -> None:
        """Write the policy; without the right, or an API server that has policies, the webhooks work all the same."""
        problem = ""
        try:
            for wanted in describe_policies(Access(settings, self._options.shim_user)):
                await self._write(wanted)
        except KubernetesError as error:
            problem = str(error)
        if problem and problem != self._policy_problem:
            _log.error(
                "the policy %s cannot be written: %s; while no admission controller runs, users can name other users",
                POLICY,
                problem,
            )
        self._policy_problem = problem

    async def _read_secret(self, now: float) -> dict[str, bytes]:
        """Return the secret with valid authorities, after it was renewed if necessary."""
        namespace = self._options.namespace
        while True:
            version, data = "", dict[str, bytes]()
            try:
                found = await self._client.get(SECRETS, namespace, SECRET)
                version, data = found.metadata.resource_version, _decode_data(found.data)
            except KubernetesError as error:
                if error.status != 404:
                    raise
            if not (changes := renew_authorities(data, now)):
                return data
            encoded = {name: base64.b64encode(value).decode() for name, value in changes.items()}
            try:
                if version:
                    body = {"metadata": {"resourceVersion": version}, "data": encoded}
                    await self._client.patch(SECRETS, namespace, SECRET, body)
                else:
                    await self._client.create(SECRETS, namespace, _describe_secret(encoded))
                _log.info("there are new authorities in the secret %s: %s", SECRET, ", ".join(sorted(changes)))
            except KubernetesError as error:
                if error.status != 409:  # another controller was first: read what it has written
                    raise

    async def _write(self, wanted: Registration) -> None:
        """Create the object, or replace its content if it differs."""
        try:
            found = await self._client.get(wanted.kind, "", wanted.name)
        except KubernetesError as error:
            if error.status != 404:
                raise
            await self._client.create(wanted.kind, "", wanted.body())
            _log.info("created %s %s", wanted.kind.plural, wanted.name)
            return
        if not wanted.is_same(found):
            await self._client.patch(wanted.kind, "", wanted.name, wanted.patch(found), patch_type="json")
            _log.info("updated %s %s", wanted.kind.plural, wanted.name)

    # Webhooks ---------------------------------------------------------------------------------------------------------

    def _build_application(self) -> web.Application:
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        application.router.add_post(MUTATE_PATH, partial(self._handle, "mutate", self._mutate))
        application.router.add_post(VALIDATE_PATH, partial(self._handle, "validate-conf", self._validate))
        application.router.add_get(HEALTH_PATH, answer_health)
        return application

    async def _handle(self, webhook: str, decide: Decide, http: web.Request) -> web.Response:
        loop = asyncio.get_running_loop()
        begun, outcome = loop.time(), "malformed"
        try:
            request = decode_review(await http.read())
            verdict = await decide(request)
            outcome = "refused" if verdict.refusal else "changed" if verdict.patch else "unchanged"
            return _answer(request, verdict)
        except ReviewError as error:
            return web.Response(status=400, text=str(error))
        finally:
            self.metrics.record(webhook, outcome, loop.time() - begun)

    async def _mutate(self, request: AdmissionRequest) -> Verdict:
        assert self._settings is not None
        access = Access(self._settings.admission, self._options.shim_user)
        return review(request, Surroundings(access, self._namespaces, self._priority_classes))

    async def _validate(self, request: AdmissionRequest) -> Verdict:
        assert self._settings is not None
        settings = self._settings
        if request.namespace != self._options.namespace:
            return ADMITTED
        try:
            text = find_configuration(request, self._maps, settings.policy_group)
        except SettingsError as error:
            return Verdict(refusal=str(error))
        verdict = ADMITTED
        if text:
            core = self._options.core or f"http://{settings.admission.scheduler_address}"
            verdict = judge(await self._core.validate(core, text), f"{settings.policy_group}.yaml")
        unknown = list_ineffective_keys(find_data(request), settings.policy_group)
        return replace(verdict, warnings=(*verdict.warnings, *unknown))


class _Core:
    """The REST port of the core."""

    def __init__(self, ca: Path | None, token_file: Path | None, metrics: AdmissionMetrics) -> None:
        """Raises OSError."""
        self._metrics = metrics
        self._tls = ssl.create_default_context(cafile=ca) if ca is not None else True
        self._token_file = token_file

    async def validate(self, core: str, text: str) -> CoreVerdict | None:
        """Return the core's verdict on a configuration; None if it gives none in time."""
        timeout = aiohttp.ClientTimeout(total=CORE_S_MAX)
        try:
            headers = {}
            if self._token_file is not None:
                headers["Authorization"] = f"Bearer {self._token_file.read_text().strip()}"
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(
                    f"{core}/ws/v1/validate-conf",
                    data=text.encode(),
                    headers=headers,
                    ssl=self._tls,
                    allow_redirects=False,
                ) as response,
            ):
                body = await response.read()
                if response.status == 200:
                    return msgspec.json.decode(body, type=CoreVerdict)
                problem = f"{response.status}: {body[:200].decode(errors='replace')}"
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
            problem = str(error) or type(error).__name__
        self._metrics.unvalidated.inc()
        _log.warning("a configuration is admitted without validation by %s: %s", core, problem)
        return None


def _answer(request: AdmissionRequest, verdict: Verdict) -> web.Response:
    if verdict.refusal:
        _log.info(
            "refused %s %s/%s of %s: %s",
            request.kind.kind,
            request.namespace,
            request.name,
            request.user_info.username,
            verdict.refusal,
        )
    return web.Response(body=encode_review(request.uid, verdict), content_type="application/json")


def _keep(objects: dict[str, _O], event: ObjectEvent, found: _O) -> None:
    name = found.metadata.name
    if event == "deleted":
        objects.pop(name, None)
    else:
        objects[name] = found


def _decode_data(data: Mapping[str, str]) -> dict[str, bytes]:
    """Return the parts of a secret; what is not base64 is left out, so that it is replaced."""
    found = {}
    for name, text in data.items():
        try:
            found[name] = base64.b64decode(text, validate=True)
        except binascii.Error:
            _log.warning("%s in the secret %s is not base64", name, SECRET)
    return found


def _describe_secret(data: Mapping[str, str]) -> dict[str, object]:
    metadata = {"name": SECRET, "labels": {"app": "yunikorn"}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
