from __future__ import annotations

import pytest

from serving_node.scheduling.cache_options import (
    CacheSetting,
    LocalOptions,
    RedisOptions,
    cache_options,
    read_cache_setting,
)


def options(*texts: str, **environment: str) -> LocalOptions | RedisOptions | None:
    return cache_options([read_cache_setting(text) for text in texts], environment)


def test_settings_are_read_as_tritonserver_does() -> None:
    assert options() is None
    assert options("local,size=1048576") == LocalOptions(1048576)
    assert options("local,size=5", "local,size=7", "local,more=1") == LocalOptions(7, ("more",))
    assert read_cache_setting("redis,password=a=b,c") == CacheSetting("redis", "password", "a=b,c")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("size=5", "No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got size=***"),
        (",size=5", "No cache specified."),
        ("local", "No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got local"),
        ("local,size", "--cache-config option format is '<cache name>,<setting>=<value>'. Got local,size"),
        ("local,size=", "--cache-config option format is '<cache name>,<setting>=<value>'. Got local,size="),
        ("local,=5", "--cache-config option format is '<cache name>,<setting>=<value>'. Got local,=5"),
    ],
)
def test_the_form_is_checked_in_tritons_words(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"option format is") as refused:
        read_cache_setting(text)
    assert str(refused.value).replace("size=5", "size=***").startswith(sentence)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["local,x=1"], "Failed to initialize LocalCache: config didn't contain a valid 'size' field."),
        (["local,size=abc"], "Failed to initialize LocalCache: size is a whole number, not 'abc'"),
        (["local,size=0"], "Failed to initialize LocalCache: size is at least 1 byte, not 0"),
        (["local,size=-1"], "Failed to initialize LocalCache: size is at least 1 byte, not -1"),
        (
            ["local,size=9", "redis,host=a"],
            "found multiple cache configurations, but only a single cache is currently supported",
        ),
        (["disk,size=9"], "--cache-config: this node has no cache 'disk', only local and redis"),
        (["redis,host=a"], "Failed to initialize RedisCache, didn't specify address. Must at a minimum specify 'host'"),
        (["redis,port=1"], "Failed to initialize RedisCache, didn't specify address."),
        (["redis,host=a", "redis,port=b"], "Failed to initialize RedisCache: port is a whole number, not 'b'"),
        (["redis,host=a", "redis,port=65536"], "Failed to initialize RedisCache: 65536 is not a port number"),
        (["redis,host=a", "redis,port=0"], "Failed to initialize RedisCache: port cannot be 0"),
        (["redis,host=a", "redis,port=1", "redis,ttl=-1"], "Failed to initialize RedisCache: ttl cannot be -1"),
        (["redis,host=a", "redis,port=1", "redis,pool_size=0"], "Failed to initialize RedisCache: pool_size cannot be"),
    ],
)
def test_what_cannot_be_obeyed_is_one_sentence(texts: list[str], sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        options(*texts)
    assert str(refused.value).startswith(sentence)


def test_redis_takes_tritons_settings_and_ours() -> None:
    given = [
        "host=h", "port=1", "user=u", "password=p", "db=2", "connect_timeout=3000", "socket_timeout=50",
        "wait_timeout=0", "pool_size=4", "tls_enabled=true", "cert=c", "key=k", "cacert=ca", "cacert_dir=cd", "sni=s",
        "ttl=60", "max_entry_byte_size=100", "odd=1",
    ]  # fmt: skip
    assert options(*(f"redis,{text}" for text in given)) == RedisOptions(
        "h", 1, "u", "p", 2, 3.0, 0.05, 1.0, 4, 60, 100, True, "c", "k", "ca", "cd", "s", ("odd",)
    )
    assert options("redis,host=h", "redis,port=1", "redis,tls_enabled=yes") == RedisOptions("h", 1)


def test_credentials_come_from_the_environment_unless_they_are_given() -> None:
    environment = {"TRITONCACHE_REDIS_USERNAME": "eu", "TRITONCACHE_REDIS_PASSWORD": "ep"}
    assert options("redis,host=h", "redis,port=1", **environment) == RedisOptions("h", 1, "eu", "ep")
    found = options("redis,host=h", "redis,port=1", "redis,user=u", "redis,password=p", **environment)
    assert found == RedisOptions("h", 1, "u", "p")


def test_passwords_do_not_show() -> None:
    assert "hidden" not in repr(read_cache_setting("redis,password=hidden"))
    assert "hidden" not in repr(RedisOptions("h", 1, password="hidden"))
    with pytest.raises(ValueError, match=r"Got password=\*\*\*") as refused:
        read_cache_setting("password=hidden")
    assert "hidden" not in str(refused.value)
