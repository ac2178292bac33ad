package config

import "slices"

const (
	inGroups   = "the process groups to which it applies; default: `app`, or the first group by name if there is no `app`"
	inServices = "the process groups that provide it; required if the file has `[processes]`"
	noTrial    = "deploys do not create test machines: use health checks, or `release_command` for a command that must succeed first"
)

var fields = slices.Concat(
	[]Field{
		supported("app", "the name of the app; `--app` overrides it"),
		supported("primary_region", "the region of the first machines, and the value of `PRIMARY_REGION` in the environment of all machines"),
		into("kill_signal", "config.stop_config.signal", "the signal that asks a program to exit; default `SIGINT`"),
		into("kill_timeout", "config.stop_config.timeout", "how long a program may take to exit before it is killed; default 5s"),
		asAPI("swap_size_mb", "config.init.swap_size_mb"),
		unsupported("console_command", "apps have no console: use bourse machine exec to run a command"),
		asAPI("host_dedication_id", "config.guest.host_dedication_id"),
		supported("machine_config", "a machine config as JSON, or the name of a file that contains it; the other fields override it"),
		unsupported("container", "containers are not supported: a machine runs one program"),
		supported("build", "the source of the image, unless `--image` is set"),
		supported("deploy", "how a deploy updates machines"),
		into("env", "config.env", "environment variables; numbers and booleans are converted to strings"),
		into("env.*", "config.env", "the value of a variable"),
		into("processes", "config.init.cmd", "the process groups and their commands; each group has its own machines"),
		into("processes.*", "config.init.cmd", "the command of a group, split into words as in a shell; to expand variables, write `sh -c '…'`"),
		into("http_service", "config.services", "a service with external ports 80 and 443"),
		into("services", "config.services", "services: ports of machines that proxies make available to clients"),
		into("checks", "config.checks", "health checks that do not belong to a service"),
		into("checks.*", "config.checks", "a check with this name"),
		unsupported("machine_checks", noTrial),
		supported("mounts", "the volume that each machine mounts; at most one per group"),
		into("vm", "config.guest", "the size of machines; if missing, existing machines keep their size"),
		into("restart", "config.restart", "when a machine is restarted after its program exits"),
		into("files", "config.files", "files to create in machines"),
		into("metrics", "config.metrics", "the endpoint of the program's own metrics"),
		into("statics", "config.statics", "directories of static files"),
		supported("experimental", "experimental settings"),
		ours("requirements", "requirements for the workers that run the machines: a string is the value of a label (label `worker` is the worker's name), and a number is an amount of a countable resource"),
		ours("requirements.*", "the value of a label, or the amount of a countable resource"),
		ours("groups", "the regions, numbers of machines, and requirements of process groups"),
	},
	within("build",
		supported("image", "an image in a registry, or `host` to run a command that is installed on the worker's host"),
		supported("dockerfile", "the Dockerfile to build with BuildKit, Docker or Podman on your host; the image is pushed to the name in `--push-to` or `image`"),
		supported("ignorefile", "a file that lists which files to exclude from the build, such as `.dockerignore`"),
		supported("build-target", "the stage of the Dockerfile to build"),
		supported("args", "build arguments"),
		supported("args.*", "the value of a build argument"),
		unsupported("builder", "buildpacks are not supported: use a Dockerfile or an image"),
		unsupported("buildpacks", "buildpacks are not supported: use a Dockerfile or an image"),
		unsupported("builtin", "built-in builders are not supported: use a Dockerfile or an image"),
		unsupported("settings", "built-in builders, and their settings, are not supported"),
		unsupported("settings.*", "built-in builders, and their settings, are not supported"),
		unsupported("compose", "Docker Compose is not supported: use a process group for each service"),
		unsupported("compose.file", "Docker Compose is not supported: use a process group for each service"),
		unsupported("compression", "the installed builder decides how to compress layers"),
		unsupported("compression_level", "the installed builder decides how to compress layers"),
	),
	within("deploy",
		supported("strategy", "`rolling` (default), `immediate`, `canary` or `bluegreen`; the last two do not support mounts, and `bluegreen` requires a health check"),
		supported("max_unavailable", "how many machines of a group may be unavailable at a time: a whole number, or a share below 1, which is rounded up; default 0.33"),
		supported("wait_timeout", "the time limit for each machine to start and pass its checks; default 5m"),
		supported("release_command", "a command to run on a temporary machine before any other machine is changed; it must exit with status 0"),
		supported("release_command_timeout", "the time limit for the command; default 5m"),
		supported("release_command_vm", "the size of the command's machine; default: the `[[vm]]` of the default group, or shared-cpu-2x if there is none"),
		unsupported("seed_command", "no command runs after the first deploy: use release_command, or bourse machine run"),
		ours("reserve", "whether to reserve the capacity for all new machines before the deploy begins"),
	),
	within("deploy.release_command_vm", slices.DeleteFunc(vmFields(), func(f Field) bool { return f.Path == "processes" })...),
	within("deploy.release_command_vm", unsupported("processes", "the command's machine does not belong to a process group")),
	within("http_service", slices.Concat(serviceFields(), checkFields("checks"), []Field{
		into("force_https", "config.services", "whether requests to port 80 are redirected to HTTPS"),
		into("http_options", "config.services", "options for HTTP on both ports"),
		into("tls_options", "config.services", "options for TLS on port 443"),
		into("checks", "config.services", "HTTP checks; a machine that fails one receives no traffic for this service"),
		into("tcp_checks", "config.services", "TCP checks; a machine that fails one receives no traffic for this service"),
		ignored("proxy_proto_options", "ports 80 and 443 do not use the PROXY protocol"),
	}, checkTimes("tcp_checks"), httpFields("http_options"), tlsFields("tls_options"))...),
	within("services", slices.Concat(serviceFields(), checkFields("http_checks"), checkTimes("tcp_checks"), []Field{
		into("protocol", "config.services", "`tcp` (default) or `udp`; `udp` causes a warning, because proxies do not serve it"),
		into("ports", "config.services", "the external ports"),
		into("ports.port", "config.services", "the number of the external port"),
		into("ports.start_port", "config.services", "the first port of a range, instead of `port`"),
		into("ports.end_port", "config.services", "the last port of the range"),
		into("ports.handlers", "config.services", "how the proxy processes connections; without handlers, it forwards all bytes unchanged"),
		into("ports.force_https", "config.services", "whether requests are redirected to HTTPS"),
		into("ports.tls_options", "config.services", "options for handler `tls`"),
		into("ports.http_options", "config.services", "options for handler `http`"),
		into("ports.proxy_proto_options", "config.services", "options for handler `proxy_proto`"),
		into("ports.proxy_proto_options.version", "config.services", "the version of the PROXY protocol; default `v1`"),
		into("tcp_checks", "config.services", "TCP checks; a machine that fails one receives no traffic for this service"),
		into("http_checks", "config.services", "HTTP checks; a machine that fails one receives no traffic for this service"),
		ignored("script_checks", "scripts cannot be used as checks: use TCP or HTTP checks"),
		ignored("tcp_checks.restart_limit", "checks do not restart machines"),
		ignored("http_checks.restart_limit", "checks do not restart machines"),
		ignored("source_id", "clients no longer use this field"),
	}, httpFields("ports.http_options"), tlsFields("ports.tls_options"))...),
	within("checks.*", slices.Concat(checkFields(""), []Field{
		into("type", "config.checks", "`tcp` or `http`; default: `http` if the check has a path, method or protocol, otherwise `tcp`"),
		into("kind", "config.checks", "`informational` (default) or `readiness`; a machine that fails a readiness check receives no requests"),
		into("port", "config.checks", "the port of the machine; 0 (default) means the port in `$PORT`"),
		supported("processes", inGroups),
		ignored("restart_limit", "checks do not restart machines"),
	})...),
	within("machine_checks", trialFields()...),
	within("mounts",
		supported("source", "the name of the volumes; required"),
		into("destination", "config.mounts", "the path at which machines mount their volume; required"),
		supported("processes", inGroups),
		supported("initial_size", "the size of new volumes; default 1gb, or 100gb for machines with a GPU"),
		supported("snapshot_retention", "how many days to keep snapshots of new volumes"),
		supported("scheduled_snapshots", "whether to take daily snapshots of new volumes"),
		into("auto_extend_size_threshold", "config.mounts", "how full a volume must be to be extended, in percent"),
		into("auto_extend_size_increment", "config.mounts", "how much to add each time a volume is extended"),
		into("auto_extend_size_limit", "config.mounts", "the maximum size to which a volume is extended"),
		ignored("encrypted", "volumes are encrypted only if the worker's disk is"),
	),
	within("vm", vmFields()...),
	within("restart",
		into("policy", "config.restart.policy", "`never`, `always` or `on-failure` (default)"),
		into("retries", "config.restart.max_retries", "how many restarts are allowed within 5 minutes; default 10"),
		supported("processes", inGroups),
	),
	within("files",
		into("guest_path", "config.files", "the path of the file in the machine; required"),
		into("local_path", "config.files", "the file that contains the content, in or below the configuration's directory"),
		into("raw_value", "config.files", "the content itself"),
		into("secret_name", "config.files", "the name of a secret that contains the content, encoded as base64"),
		supported("processes", inGroups),
	),
	within("metrics",
		asAPI("port", "config.metrics"),
		asAPI("path", "config.metrics"),
		asAPI("https", "config.metrics"),
		supported("processes", inGroups),
	),
	within("statics",
		asAPI("guest_path", "config.statics[]"),
		asAPI("url_prefix", "config.statics[]"),
		asAPI("tigris_bucket", "config.statics[]"),
		asAPI("index_document", "config.statics[]"),
	),
	within("experimental",
		into("cmd", "config.init.cmd", "the command of groups that have none in `[processes]`"),
		into("entrypoint", "config.init.entrypoint", "the entrypoint, instead of the image's"),
		into("exec", "config.init.exec", "a command to run instead of the entrypoint and command"),
		unsupported("auto_rollback", "a failed deploy undoes its changes, unless it is run with --no-rollback", "true"),
		unsupported("enable_consul", "Consul is not supported"),
		unsupported("lazy_load_images", "an image is pulled completely before a machine starts"),
		supported("machine_config", "the same as `machine_config` at the top level"),
		unsupported("attached", "apps cannot share secrets: set them with bourse secrets set"),
		unsupported("attached.secrets", "apps cannot share secrets: set them with bourse secrets set"),
		unsupported("attached.secrets.export", "apps cannot share secrets: set them with bourse secrets set"),
		unsupported("attached.secrets.export.*", "apps cannot share secrets: set them with bourse secrets set"),
		ignored("enable_etcd", "etcd is not supported"),
		ignored("use_zstd", "the installed builder decides how to compress layers"),
		ignored("allowed_public_ports", "clients no longer use this field"),
		ignored("private_network", "every app has a private network"),
		ignored("kill_timeout", "clients no longer read it here: set kill_timeout at the top level"),
	),
	within("groups",
		ours("processes", "the process groups to which it applies; default: all groups that no other `[[groups]]` section names"),
		ours("regions", "the regions, each with `count` machines; default: `primary_region`"),
		ours("count", "the number of machines in each region; default: 1 if `regions` is set, otherwise the number does not change"),
		ours("counts", "the number of machines by region, instead of `regions` and `count`"),
		ours("counts.*", "the number of machines in a region"),
		ours("spare", "whether a new group without a count gets two machines; default true. The second machine is a standby if the group has no services. A group with a mount gets only one machine"),
		ours("requirements", "additional `requirements` for these groups"),
		ours("requirements.*", "the value of a label, or the amount of a countable resource"),
	),
)

// serviceFields returns the fields that [http_service] and [[services]] have in common.
func serviceFields() []Field {
	return slices.Concat([]Field{
		into("internal_port", "config.services", "the port of the machine; 0 means the port in `$PORT`. Default: 8080, or 0 with image `host`"),
		into("auto_stop_machines", "config.services", "what to do with idle machines: leave them running (`off`, the default), `stop` or `suspend` them; `false` means `off`, and `true` means `stop`"),
		into("auto_start_machines", "config.services", "whether requests start stopped machines; default true"),
		into("min_machines_running", "config.services", "how many machines `auto_stop_machines` leaves running in the primary region"),
		supported("processes", inServices),
		into("concurrency", "config.services", "limits for a machine's concurrent connections or requests"),
		into("concurrency.type", "config.services", "`connections` (default) or `requests`"),
		into("concurrency.soft_limit", "config.services", "the number at which proxies start to prefer other machines; default: 20, or `hard_limit` if it is lower"),
		into("concurrency.hard_limit", "config.services", "the maximum number for a machine; default: no limit"),
		unsupported("machine_checks", noTrial),
	}, within("machine_checks", trialFields()...))
}

func checkTimes(section string) []Field {
	list := []Field{
		into("interval", "config.checks", "the time from the end of one check to the next; default 15s"),
		into("timeout", "config.checks", "the time limit of a check; default 2s"),
		into("grace_period", "config.checks", "the time after a start during which failures do not count; default 1s"),
	}
	if section == "" {
		return list
	}
	return within(section, list...)
}

func checkFields(section string) []Field {
	list := append(checkTimes(""),
		into("method", "config.checks", "the method of the request; default `GET`"),
		into("path", "config.checks", "the path of the request; default `/`"),
		into("protocol", "config.checks", "`http` (default) or `https`"),
		into("tls_skip_verify", "config.checks", "whether to accept any certificate"),
		into("tls_server_name", "config.checks", "the name that the certificate must contain; default `localhost`"),
		into("headers", "config.checks", "the headers of the request: for each name, a string or a list of strings"),
		into("headers.*", "config.checks", "the value or values of a header"),
	)
	if section == "" {
		return list
	}
	return within(section, list...)
}

func trialFields() []Field {
	return []Field{unsupported("image", noTrial), unsupported("entrypoint", noTrial), unsupported("command", noTrial), unsupported("kill_signal", noTrial), unsupported("kill_timeout", noTrial)}
}

func vmFields() []Field {
	return []Field{
		into("size", "config.guest", "a named size such as shared-cpu-2x or performance-1x; the fields below override parts of it"),
		into("memory", "config.guest.memory_mb", "the memory: a size such as 512mb, or a number of megabytes"),
		into("memory_mb", "config.guest.memory_mb", "the memory in megabytes"),
		asAPI("max_memory_mb", "config.guest.max_memory_mb"),
		into("cpus", "config.guest.cpus", "the number of CPUs"),
		into("cpu_kind", "config.guest.cpu_kind", "`shared` (default) or `performance`"),
		into("gpus", "config.guest.gpus", "the number of GPUs; default: 1 if gpu_kind is set"),
		into("gpu_kind", "config.guest.gpu_kind", "the kind of GPU, by the name that workers use"),
		asAPI("kernel_args", "config.guest.kernel_args"),
		asAPI("host_dedication_id", "config.guest.host_dedication_id"),
		asAPI("persist_rootfs", "config.guest.persist_rootfs"),
		supported("processes", "the process groups to which it applies; default: all groups that no other `[[vm]]` section names"),
	}
}

func tlsFields(section string) []Field {
	return within(section,
		into("alpn", "config.services", "the protocols to offer to clients"),
		into("versions", "config.services", "the TLS versions to accept; default: both"),
		into("default_self_signed", "config.services", "whether to use a self-signed certificate if there is no other"),
	)
}

func httpFields(section string) []Field {
	return within(section,
		into("compress", "config.services", "whether to compress responses"),
		into("h2_backend", "config.services", "whether machines expect HTTP/2 without TLS, as gRPC servers do"),
		into("idle_timeout", "config.services", "the number of seconds after which an idle connection is closed"),
		asAPI("headers_read_timeout", "config.services[].ports[].http_options.headers_read_timeout"),
		into("response", "config.services", "changes to the headers of responses"),
		into("response.headers", "config.services", "the headers to set, or to remove with `false`"),
		into("response.headers.*", "config.services", "the value or values of a header, or `false`"),
		into("response.pristine", "config.services", "whether to leave out the headers that the proxy adds"),
		into("replay_cache", "config.services", "rules by which a proxy caches the replay destination of a session"),
		into("replay_cache.path_prefix", "config.services", "the prefix of the paths to which the rule applies"),
		into("replay_cache.ttl_seconds", "config.services", "how long the destination is cached, in seconds"),
		into("replay_cache.type", "config.services", "what identifies a session: a `header` or a `cookie`"),
		into("replay_cache.name", "config.services", "the name of the header or cookie"),
		into("replay_cache.allow_bypass", "config.services", "whether a client may bypass the cache"),
	)
}
