from __future__ import annotations

from pathlib import Path

import pytest

from serving_node.cli import main, parse
from serving_node.repository.repository import ControlMode
from serving_node.scheduling.cache_options import LocalOptions, RedisOptions
from serving_node.scheduling.rate_limit import EACH_DEVICE, Limit
from serving_node.settings import NodeSettings, SettingsError


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


def settings(*arguments: str, environment: dict[str, str] | None = None) -> NodeSettings:
    return parse(arguments, environment or {}).settings


def test_parse_takes_tritonservers_spelling(folder: str) -> None:
    chosen = settings(
        f"--model-repository={folder}",
        "--model-repository",
        folder,
        "--model-control-mode=explicit",
        "--load-model=a",
        "--load-model",
        "b",
        "--http-port=9000",
        "--allow-grpc",
        "OFF",
        "--exit-on-error=0",
        "--strict-readiness",
        "--backend-config=onnxruntime,default-max-batch-size=8",
        "--backend-config=key=value",
    )
    assert chosen.model_repositories == (Path(folder), Path(folder))
    assert chosen.model_control_mode is ControlMode.EXPLICIT
    assert chosen.load_models == ("a", "b")
    assert (chosen.http_port, chosen.allow_grpc, chosen.exit_on_error, chosen.strict_readiness) == (
        9000,
        False,
        False,
        True,
    )
    assert chosen.backend_config == (("onnxruntime", "default-max-batch-size", "8"), ("", "key", "value"))
    assert chosen.effective_metrics_address == chosen.http_address == "0.0.0.0"


def test_parse_command_line_wins_over_environment_over_default(folder: str) -> None:
    environment = {"NODE_HTTP_PORT": "9100", "NODE_GRPC_PORT": "9101", "NODE_MODEL_REPOSITORY": folder}
    chosen = settings("--http-port=9200", environment=environment)
    assert (chosen.http_port, chosen.grpc_port, chosen.metrics_port) == (9200, 9101, 8002)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give --model-repository DIR to serve models, or --join URL"),
        (["--no-such-flag=1"], "unknown flag --no-such-flag"),
        (["serve"], "'serve' is not a flag"),
        (["--http-port"], "--http-port needs a value"),
        (["--model-repository={0}", "--http-port=many"], "--http-port: 'many' is not a whole number"),
        (["--model-repository={0}", "--allow-http=maybe"], "--allow-http: 'maybe' is neither true nor false"),
        (["--model-repository={0}", "--model-control-mode=x"], "not one of none, poll, explicit"),
        (["--model-repository={0}/nowhere"], "is not a folder"),
        (["--model-repository={0}", "--load-model=a"], "--load-model needs --model-control-mode=explicit"),
        (["--model-repository={0}", "--load-on-request=1"], "--load-on-request needs --model-control-mode=explicit"),
        (["--model-repository={0}", "--model-memory-budget=9"], "--model-memory-budget needs --load-on-request"),
        (["--state-dir={0}", "--load-on-request=1"], "on this one the control plane decides"),
        (
            ["--model-repository={0}", "--model-control-mode=explicit", "--load-model=*", "--load-model=a"],
            "must be the only --load-model",
        ),
        (["--model-repository={0}", "--log-format=xml"], "--log-format is one of default, ISO8601, json, not 'xml'"),
        (["--model-repository={0}", "--grpc-port=8000"], "HTTP and gRPC cannot both listen on 0.0.0.0:8000"),
        (["--model-repository={0}", "--http-port=70000"], "70000 is not a port number"),
        (["--model-repository={0}", "--state-dir={0}"], "either --model-repository or --state-dir"),
        (["--join=http://x"], "--join needs --state-dir"),
        (["--join=console:7070", "--state-dir={0}"], "needs the URL of a control plane"),
        (["--state-dir={0}", "--admin-address=0.0.0.0"], "the admin port on 0.0.0.0 needs TLS"),
        (["--state-dir={0}", "--admin-tls-cert={0}/c"], "belong together"),
        (["--state-dir={0}", "--admin-tls-cert={0}/c", "--admin-tls-key={0}/k"], "does not exist"),
        (["--state-dir={0}", "--label=zone"], "not of the form key=value"),
        (["--model-repository={0}", "--allow-sagemaker=true"], "--allow-sagemaker is not supported"),
        (["--model-repository={0}", "--grpc-use-ssl=true"], "needs --grpc-server-cert and --grpc-server-key"),
        (
            ["--model-repository={0}", "--grpc-use-ssl-mutual", "--grpc-server-cert=c", "--grpc-server-key=k"],
            "needs --grpc-root-cert",
        ),
        (["--model-repository={0}", "--grpc-server-cert=c"], "needs --grpc-use-ssl"),
        (["--model-repository={0}", "--grpc-restricted-protocol=a:b=c"], "unknown restricted protocol 'a'"),
        (["--model-repository={0}", "--grpc-header-forward-pattern=("], "not a regular expression"),
        (["--model-repository={0}", "--grpc-keepalive-time=0"], "--grpc-keepalive-time must be at least 1"),
        (["--model-repository={0}", "--grpc-infer-response-compression-level=x"], "none, low, medium, high"),
        (["--model-repository=s3://"], "--model-repository: no bucket name found in 's3://'"),
        (["--model-repository={0}", "--model-config-name=a/b"], "is not a name without spaces and slashes"),
        (["--model-repository={0}", "--model-config-name="], "is not a name without spaces and slashes"),
        (["--model-repository={0}", "--repository-poll-secs=-1"], "must not be negative"),
        (["--model-repository={0}", "--rate-limit=sometimes"], "is not one of execution_count, off"),
        (
            ["--model-repository={0}", "--rate-limit-resource=R1"],
            "option format is '<resource_name>:<count>:<device>' or '<resource_name>:<count>'. Got R1",
        ),
        (["--model-repository={0}", "--rate-limit-resource=R1:1:2:3"], "Got R1:1:2:3"),
        (["--model-repository={0}", "--rate-limit-resource=R1:x"], "Invalid option value. Got x"),
        (["--model-repository={0}", "--host-policy=p,x"], "format is '<policy name>,<setting>=<value>'. Got p,x"),
        (
            ["--model-repository={0}", "--host-policy=p,x=1"],
            "Unsupported host policy setting 'x' is specified, supported settings are 'numa-node', 'cpu-cores'",
        ),
        (
            ["--model-repository={0}", "--cache-config=local,size=1", "--response-cache-byte-size=1"],
            "Incompatible flags --response-cache-byte-size and --cache-config both provided",
        ),
        (["--model-repository={0}", "--http-restricted-api=a:b=c"], "unknown restricted api 'a'"),
        (["--model-repository={0}", "--http-restricted-api=health"], "option format is"),
        (["--model-repository={0}", "--http-header-forward-pattern=("], "not a regular expression"),
        (["--model-repository={0}", "--http-use-ssl"], "needs --http-server-cert and --http-server-key"),
        (["--model-repository={0}", "--http-use-ssl-mutual"], "needs --http-use-ssl and --http-root-cert"),
        (["--model-repository={0}", "--http-server-cert=c"], "needs --http-use-ssl"),
        (["--model-repository={0}", "--http-idle-timeout-secs=0"], "must be positive"),
    ],
)
def test_parse_refuses_with_a_sentence(folder: str, arguments: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence.replace("*", r"\*")):
        settings(*(argument.format(folder) for argument in arguments))


def test_parse_says_which_flags_have_no_effect(folder: str) -> None:
    notes = parse(
        [f"--model-store={folder}", "--cuda-memory-pool-byte-size=0:1", "--repoagent-directory", "b"], {}
    ).notes
    assert notes == (
        "--repoagent-directory has no effect: what it would find there is part of this node",
        "--cuda-memory-pool-byte-size has no effect: memory is not pooled by device here",
    )


def test_parse_reads_limits_and_host_policies(folder: str) -> None:
    read = settings(
        f"--model-store={folder}",
        "--rate-limit=execution_count",
        "--rate-limit-resource=R1:4",
        "--rate-limit-resource=R2:3:0",
        "--host-policy=p,cpu-cores=0-1",
        "--host-policy=p,numa-node=0",
    )
    assert read.rate_limit == "execution_count"
    assert read.rate_limit_resources == (Limit("R1", 4, EACH_DEVICE), Limit("R2", 3, 0))
    assert read.host_policies == (("p", "cpu-cores", "0-1"), ("p", "numa-node", "0"))


def test_parse_admin_beyond_loopback_is_allowed_with_tls(tmp_path: Path) -> None:
    for name in ("c.pem", "k.pem"):
        (tmp_path / name).touch()
    chosen = settings(
        f"--state-dir={tmp_path}",
        "--admin-address=0.0.0.0",
        f"--admin-tls-cert={tmp_path}/c.pem",
        f"--admin-tls-key={tmp_path}/k.pem",
        "--label=zone=a",
        "--label=gpu=none",
    )
    assert chosen.joined
    assert chosen.labels == (("zone", "a"), ("gpu", "none"))


def test_settings_repr_shows_what_differs_and_no_secret(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("very-secret")
    shown = repr(settings(f"--state-dir={tmp_path}", "--join=http://c", f"--join-token-file={token}"))
    assert "join_url='http://c'" in shown
    assert "very-secret" not in shown
    assert "http_port" not in shown


def test_main_refusal_is_one_line_and_status_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--what=1"])
    assert caught.value.code == 1
    assert capsys.readouterr().err == "error: unknown flag --what; see --help\n"


def test_main_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "--model-repository" in capsys.readouterr().out


def test_restricted_parts_come_from_several_flags_or_one_variable(folder: str) -> None:
    flags = ["--http-restricted-api=health,metadata:a=1", "--http-restricted-api", "trace:b=2,3"]
    settings = parse([f"--model-repository={folder}", *flags], {}).settings
    variable = {"NODE_HTTP_RESTRICTED_API": "health,metadata:a=1;trace:b=2,3"}
    assert parse([f"--model-repository={folder}"], variable).settings == settings
    assert [group.value for group in settings.http_restricted_api] == ["1", "2,3"]
    assert "2,3" not in repr(settings), "what is logged at the start has no secrets"


def test_traces_and_metrics_are_set_by_flags_or_variables(folder: str) -> None:
    flags = [
        "--trace-config=triton,file=/tmp/t",
        "--trace-config=level=TIMESTAMPS",
        "--trace-rate=7",
        "--metrics-config=summary_latencies=true",
        "--metrics-config=summary_quantiles=0.5:0.1,0.9:0.01",
    ]
    settings = parse([f"--model-repository={folder}", *flags], {}).settings
    variables = {
        "NODE_TRACE_CONFIG": "triton,file=/tmp/t;level=TIMESTAMPS",
        "NODE_TRACE_RATE": "7",
        "NODE_METRICS_CONFIG": "summary_latencies=true;summary_quantiles=0.5:0.1,0.9:0.01",
    }
    assert parse([f"--model-repository={folder}"], variables).settings == settings
    options = settings.trace_options({})
    assert (options.file, options.rate, options.level.names()) == ("/tmp/t", 7, ["TIMESTAMPS"])
    assert settings.metrics_config().quantiles == ((0.5, 0.1), (0.9, 0.01))


@pytest.mark.parametrize(
    "flag",
    ["--trace-config=sampler=x", "--trace-level=x", "--metrics-config=x=true", "--metrics-interval-ms=0"],
)
def test_traces_and_metrics_that_mean_nothing_are_refused(folder: str, flag: str) -> None:
    with pytest.raises(SettingsError, match=flag.partition("=")[0]):
        parse([f"--model-repository={folder}", flag], {})


def test_the_response_cache_is_chosen_by_its_flag_or_the_old_one(folder: str) -> None:
    repository = f"--model-repository={folder}"
    assert parse([repository], {}).settings.cache_options({}) is None
    old = parse([repository, "--response-cache-byte-size=4096"], {})
    assert old.settings.cache_options({}) == LocalOptions(4096)
    assert old.notes == (
        "Warning: '--response-cache-byte-size' has been deprecated! This will default to the 'local' cache"
        " implementation with the provided byte size for its config. Please use '--cache-config' instead. The"
        " equivalent --cache-config CLI args would be: '--cache-config=local,size=4096'",
    )
    flags = ["--cache-config", "redis,host=h", "--cache-config=redis,port=7", "--cache-config=redis,password=hidden"]
    settings = parse([repository, *flags], {}).settings
    assert settings.cache_options({"TRITONCACHE_REDIS_USERNAME": "u"}) == RedisOptions("h", 7, "u", "hidden")
    assert "hidden" not in repr(settings)
    variables = {"NODE_CACHE_CONFIG": "redis,host=h;redis,port=7;redis,password=hidden"}
    assert parse([repository], variables).settings == settings


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--cache-config=size=5", "No cache specified. --cache-config option format is"),
        ("--cache-config=local,size", "--cache-config option format is"),
        ("--cache-config=local,size=0", "Failed to initialize LocalCache: size is at least 1 byte"),
        ("--cache-config=redis,host=h", "Failed to initialize RedisCache, didn't specify address."),
        ("--cache-config=disk,size=1", "this node has no cache 'disk'"),
        ("--response-cache-byte-size=abc", "'abc' is not a whole number"),
        ("--response-cache-byte-size=-5", "size is at least 1 byte"),
    ],
)
def test_caches_that_mean_nothing_are_refused(folder: str, flag: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        parse([f"--model-repository={folder}", flag], {}).settings.cache_options({})


# Source: ``tritonserver --help`` of 2.51, and three that came later.
TRITONS_FLAGS = """
    allow-client-shm allow-cpu-metrics allow-gpu-metrics allow-grpc allow-http allow-metrics allow-sagemaker
    allow-vertex-ai backend-config backend-directory buffer-manager-thread-count cache-config cache-directory
    cuda-memory-pool-byte-size cuda-virtual-address-size disable-auto-complete-config enable-peer-access
    exit-on-error exit-timeout-secs grpc-address grpc-header-forward-pattern grpc-http2-max-ping-strikes
    grpc-http2-max-pings-without-data grpc-http2-min-recv-ping-interval-without-data
    grpc-infer-allocation-pool-size grpc-infer-response-compression-level grpc-keepalive-permit-without-calls
    grpc-keepalive-time grpc-keepalive-timeout grpc-max-connection-age grpc-max-connection-age-grace
    grpc-max-response-pool-size grpc-port grpc-restricted-protocol grpc-root-cert grpc-server-cert
    grpc-server-key grpc-use-ssl grpc-use-ssl-mutual host-policy http-address http-header-forward-pattern
    http-max-input-size http-port http-restricted-api http-thread-count id load-model log-error log-file
    log-format log-info log-verbose log-warning metrics-address metrics-config metrics-interval-ms metrics-port
    min-supported-compute-capability model-config-name model-control-mode model-load-gpu-limit
    model-load-retry-count model-load-thread-count model-namespacing model-repository model-store
    pinned-memory-pool-byte-size rate-limit rate-limit-resource repoagent-directory repository-poll-secs
    response-cache-byte-size reuse-grpc-port reuse-http-port sagemaker-port sagemaker-safe-port-range
    sagemaker-thread-count strict-model-config strict-readiness trace-config trace-count trace-file trace-level
    trace-log-frequency trace-rate vertex-ai-default-model vertex-ai-port vertex-ai-thread-count
"""


@pytest.mark.parametrize("name", TRITONS_FLAGS.split())
def test_every_flag_of_tritonserver_is_known(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse([f"--{name}", "nonsense"], {})
    assert "unknown flag" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "expected", "notes"),
    [
        (["--strict-model-config=true"], True, 1),
        (["--strict-model-config", "false"], False, 1),
        (["--disable-auto-complete-config"], True, 0),
        (["--disable-auto-complete-config", "--strict-model-config=false"], True, 2),
        (["--strict-model-config=false", "--disable-auto-complete-config"], True, 2),
    ],
)
def test_strict_model_config_gives_way(folder: str, arguments: list[str], expected: bool, notes: int) -> None:
    command_line = parse([f"--model-repository={folder}", *arguments], {})
    assert command_line.settings.disable_auto_complete_config is expected
    assert len(command_line.notes) == notes
    if notes:
        assert command_line.notes[0] == (
            "Warning: '--strict-model-config' has been deprecated! Please use '--disable-auto-complete-config' instead."
        )


def test_deprecated_flags_say_what_to_use(folder: str) -> None:
    command_line = parse([f"--model-repository={folder}", "--trace-rate=5"], {})
    assert command_line.settings.trace_rate == 5
    assert command_line.notes == (
        "Warning: '--trace-rate' has been deprecated and will be removed in future releases. Please use"
        " '--trace-config rate=' instead.",
    )


def test_repositories_may_be_remote() -> None:
    chosen = settings("--model-repository=s3://localhost:9000/bucket/models", "--model-repository=gs://b")
    assert [str(one) for one in chosen.model_repositories] == ["s3://localhost:9000/bucket/models", "gs://b"]
    assert "s3://localhost:9000/bucket/models" in repr(chosen)


def test_settings_of_the_repository(folder: str) -> None:
    chosen = settings(
        f"--model-repository={folder}",
        "--model-control-mode=POLL",
        "--repository-poll-secs=3",
        "--model-config-name=h100",
        "--model-load-retry-count=2",
        "--model-namespacing=on",
        "--model-load-gpu-limit=0:0.5",
        "--log-verbose=true",
    )
    assert chosen.model_control_mode is ControlMode.POLL
    assert (chosen.repository_poll_secs, chosen.model_config_name, chosen.model_load_retry_count) == (3, "h100", 2)
    assert (chosen.model_namespacing, chosen.model_load_gpu_limit, chosen.log_verbose) == (True, ((0, 0.5),), 1)
