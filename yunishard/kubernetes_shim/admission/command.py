"""`yunishard k8s-admission`: the process of the admission controller, until a signal.

The docstring of `run_k8s_admission` is the help text. Not here: what it does (`controller.py`).
"""

import argparse
import os
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from yunishard.cli.main import CommandUnusable
from yunishard.kubernetes_shim.admission.controller import AdmissionController, Options
from yunishard.kubernetes_shim.client import KubernetesClient
from yunishard.kubernetes_shim.kubeconfig import find_access
from yunishard.kubernetes_shim.metrics import AdmissionMetrics, serve_metrics
from yunishard.kubernetes_shim.process import (
    add_process_options,
    parse_host_and_port,
    run_until_signal,
)

LISTEN_DEFAULT: Final = "0.0.0.0:9089"


def add_k8s_admission_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard k8s-admission`."""
    add = parser.add_argument
    about = f"where to serve the webhooks (default: {LISTEN_DEFAULT})"
    add("--listen", type=parse_host_and_port, metavar="HOST:PORT", default=LISTEN_DEFAULT, help=about)
    about = "where the API server reaches the webhooks, if not by the service, such as https://10.0.0.1:9089"
    add("--url", type=_parse_url("https"), metavar="URL", help=about)
    about = "the REST port of the core (default: http:// and the setting webHook.schedulerServiceAddress)"
    add("--core", type=_parse_url("https?"), metavar="URL", help=about)
    about = "CA certificates of the REST port (default: those of this machine)"
    add("--core-ca", type=Path, metavar="FILE", help=about)
    about = "a token for the REST port, read for each request"
    add("--core-token-file", type=Path, metavar="FILE", help=about)
    about = "the user as whom the shim creates placeholder pods, such as system:serviceaccount:yunikorn:yunishard-shim"
    add("--shim-user", metavar="NAME", default="", help=about)
    add_process_options(parser, contents="config maps, secret and service")


def run_k8s_admission(args: argparse.Namespace) -> int:
    """Serve the admission webhooks of Kubernetes: new pods are given to the
    scheduler, with an application id and the user who submits them, and changed
    queues are validated before they are stored.

    The controller creates its own certificates, keeps them in the secret
    admission-controller-secrets, and writes the webhook configurations
    yunikorn-admission-controller-mutations and -validations, and the policy
    yunikorn-admission-controller-users. Its settings are the keys
    admissionController.* of the config maps yunikorn-defaults and
    yunikorn-configs. If it does not run, pods are created without changes; by the
    policy, they still cannot name another user.

    examples:
      yunishard k8s-admission                        in a pod
      yunishard k8s-admission --namespace yunikorn --kubeconfig ~/.kube/config
          --url https://10.0.0.1:9089                outside of the cluster
      yunishard k8s-admission --core https://yunikorn-service:9080
          --core-ca ca.crt --core-token-file token   a core with TLS and tokens

    exit codes:
      0  stopped by Ctrl-C or SIGTERM
      2  wrong usage, or the API server or the settings cannot be used
    """
    _check_files(args)
    run_until_signal("k8s-admission", args, _serve(args))
    return 0


async def _serve(args: argparse.Namespace) -> None:
    access = find_access(os.environ, Path(args.kubeconfig) if args.kubeconfig else None)
    options = Options(
        namespace=args.namespace or access.namespace or "default",
        listen=args.listen,
        url=args.url or "",
        core=args.core or "",
        core_ca=args.core_ca,
        core_token_file=args.core_token_file,
        shim_user=args.shim_user,
    )
    metrics = AdmissionMetrics()
    async with (
        KubernetesClient(access, user_agent="yunishard-k8s-admission") as client,
        serve_metrics(args.metrics or "", "k8s-admission", client.metrics.registry, metrics.registry),
    ):
        await AdmissionController(client, options, metrics).run(_write_ready)


def _write_ready(port: int) -> None:
    print(f"serving admission webhooks on port {port}", flush=True)  # noqa: T201 - this is the output


def _parse_url(schemes: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(rf"{schemes}://[^\s/]+:[0-9]{{1,5}}/?", text):
            wanted = "https" if schemes == "https" else "http or https"
            raise argparse.ArgumentTypeError(f"expected {wanted}://HOST:PORT, got {text!r}")
        return text.rstrip("/")

    return parse


def _check_files(args: argparse.Namespace) -> None:
    """Raise CommandUnusable if a file of the command line cannot be used: without this, it shows with the first
    configuration that is validated.
    """
    try:
        file = args.core_ca
        if file is not None:
            ssl.create_default_context(cafile=file)
        file = args.core_token_file
        if file is not None:
            file.read_text()
    except ssl.SSLError:
        raise CommandUnusable(f"{file}: there is no certificate in this file") from None
    except OSError as error:
        raise CommandUnusable(f"{file}: the file cannot be read: {(error.strerror or str(error)).lower()}") from None
