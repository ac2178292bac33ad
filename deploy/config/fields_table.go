package config

import "slices"

const (
	inGroups   = "the process groups that it is for; default: `app`, else the first by name"
	inServices = "the process groups that serve it; required where there are `[processes]`"
	noTrial    = "a deploy makes no machines that try others: health checks decide, and `release_command` runs what must succeed first"
)

var fields = slices.Concat(
	[]Field{
		done("app", "the app; `--app` instead of it"),
		done("primary_region", "where the first machines go, and `PRIMARY_REGION` in their environment"),
		into("kill_signal", "config.stop_config.signal", "how machines are asked to end"),
		into("kill_timeout", "config.stop_config.timeout", "how long they may take"),
		asAPI("swap_size_mb", "config.init.swap_size_mb"),
		not("console_command", "there is no console of an app: run its command with bourse machine exec"),
		asAPI("host_dedication_id", "config.guest.host_dedication_id"),
		done("machine_config", "a machine's config as JSON, or the file that has it: what the other fields are laid over"),
		not("container", "a machine has one program"),
		done("build", "where the image comes from, when no `--image` says"),
		done("deploy", "how machines are replaced"),
		into("env", "config.env", "variables; numbers and truths as they are written"),
		into("env.*", "config.env", "one of them"),
		into("processes", "config.init.cmd", "process groups: a set of machines for each, with its command"),
		into("processes.*", "config.init.cmd", "the command of a group, split as a shell would, without a shell: `$PORT` needs `sh -c '…'`"),
		into("http_service", "config.services", "a service at ports 80 and 443"),
		into("services", "config.services", "ports of machines, reached from outside"),
		into("checks", "config.checks", "health checks of machines beside their services"),
		into("checks.*", "config.checks", "one of them, by its name"),
		not("machine_checks", noTrial),
		done("mounts", "a volume for each machine; one a group"),
		into("vm", "config.guest", "the size of machines; without it those that are there keep theirs"),
		into("restart", "config.restart", "when machines whose program ended are started again"),
		into("files", "config.files", "files in machines"),
		into("metrics", "config.metrics", "where a program shows its own metrics"),
		into("statics", "config.statics", "directories that a proxy serves"),
		done("experimental", "what has no better place"),
		ours("requirements", "what machines ask of their workers: a label's text (`worker` is the worker's name), or a number of a countable"),
		ours("requirements.*", "one label or countable"),
		ours("groups", "where the machines of process groups are, how many, and what they ask of their workers"),
	},
	within("build",
		done("image", "a name in a registry, or `host` for a command of the host"),
		done("dockerfile", "built where a builder is there, and pushed as `--push-to`, or `image` beside it, says"),
		done("ignorefile", "files that a build does not get"),
		done("build-target", "the stage of the Dockerfile"),
		done("args", "build arguments"),
		done("args.*", "one of them"),
		not("builder", "there are no buildpacks here: use a Dockerfile or an image"),
		not("buildpacks", "there are no buildpacks here: use a Dockerfile or an image"),
		not("builtin", "there are no built-in builders here: use a Dockerfile or an image"),
		not("settings", "they are of built-in builders, which are not here"),
		not("settings.*", "they are of built-in builders, which are not here"),
		not("compose", "a machine has one program: make a process group for each service"),
		not("compose.file", "a machine has one program: make a process group for each service"),
		not("compression", "the builder that is found chooses how layers are compressed"),
		not("compression_level", "the builder that is found chooses how layers are compressed"),
	),
	within("deploy",
		done("strategy", "`rolling` (default), `immediate`, `canary` or `bluegreen`; the last two refuse mounts, the last wants a check"),
		done("max_unavailable", "of a group: from 1 on so many machines, below it that share, rounded up; default 0.33"),
		done("wait_timeout", "for one machine to start and to pass its checks; default 5m"),
		done("release_command", "run on a machine of its own before any other is changed; it must end with 0"),
		done("release_command_timeout", "for the command; default 5m"),
		done("release_command_vm", "the size of its machine; default: the largest of the default group, else shared-cpu-2x"),
		not("seed_command", "nothing runs after the first deploy: use release_command, or bourse machine run"),
		ours("reserve", "room for the whole deploy is held in every region before it begins"),
	),
	within("deploy.release_command_vm", slices.DeleteFunc(vmFields(), func(f Field) bool { return f.Path == "processes" })...),
	within("deploy.release_command_vm", not("processes", "the command's machine is of no group")),
	within("http_service", slices.Concat(serviceFields(), checkFields("checks"), []Field{
		into("force_https", "config.services", "requests at port 80 are sent to 443"),
		into("http_options", "config.services", "how both ports speak HTTP"),
		into("tls_options", "config.services", "how port 443 speaks TLS"),
		into("checks", "config.services", "requests that decide whether a machine is sent others"),
		into("tcp_checks", "config.services", "connections that decide whether a machine is sent others"),
		ignored("proxy_proto_options", "ports 80 and 443 write no header of the PROXY protocol"),
	}, checkTimes("tcp_checks"), httpFields("http_options"), tlsFields("tls_options"))...),
	within("services", slices.Concat(serviceFields(), checkFields("http_checks"), checkTimes("tcp_checks"), []Field{
		into("protocol", "config.services", "`tcp` (default) or `udp`, which no proxy serves: a warning says so"),
		into("ports", "config.services", "how it is reached from outside"),
		into("ports.port", "config.services", "the port outside"),
		into("ports.start_port", "config.services", "of a range, instead of `port`"),
		into("ports.end_port", "config.services", "of a range"),
		into("ports.handlers", "config.services", "`http`, `tls`, `pg_tls`, `proxy_proto`; none: bytes as they come"),
		into("ports.force_https", "config.services", "its requests are sent to 443"),
		into("ports.tls_options", "config.services", "how handler tls speaks"),
		into("ports.http_options", "config.services", "how handler http speaks"),
		into("ports.proxy_proto_options", "config.services", "of handler proxy_proto"),
		into("ports.proxy_proto_options.version", "config.services", "`v2`, or the first version"),
		into("tcp_checks", "config.services", "connections that decide whether a machine is sent others"),
		into("http_checks", "config.services", "requests that decide whether a machine is sent others"),
		ignored("script_checks", "machines are checked from outside, by tcp and http"),
		ignored("tcp_checks.restart_limit", "checks restart nothing"),
		ignored("http_checks.restart_limit", "checks restart nothing"),
		ignored("source_id", "no client reads it any more"),
	}, httpFields("ports.http_options"), tlsFields("ports.tls_options"))...),
	within("checks.*", slices.Concat(checkFields(""), []Field{
		into("type", "config.checks", "`tcp` or `http`; default http where there is a path, method or protocol"),
		into("kind", "config.checks", "`informational` (default), or `readiness`: it decides whether requests reach the machine"),
		into("port", "config.checks", "of the machine; 0: its $PORT"),
		done("processes", inGroups),
		ignored("restart_limit", "checks restart nothing"),
	})...),
	within("machine_checks", trialFields()...),
	within("mounts",
		done("source", "the name of the volumes; required"),
		into("destination", "config.mounts", "where a machine has its volume; required"),
		done("processes", inGroups),
		done("initial_size", "of volumes that have to be made; default 1gb, and 100gb of machines with a GPU"),
		done("snapshot_retention", "days that the snapshots of new volumes are kept"),
		done("scheduled_snapshots", "whether new volumes have a snapshot a day"),
		into("auto_extend_size_threshold", "config.mounts", "a volume that is so full, in percent, grows"),
		into("auto_extend_size_increment", "config.mounts", "by so much"),
		into("auto_extend_size_limit", "config.mounts", "up to this"),
		ignored("encrypted", "volumes are as the workers' disks are"),
	),
	within("vm", vmFields()...),
	within("restart",
		into("policy", "config.restart.policy", "`never`, `always` or `on-failure` (default)"),
		into("retries", "config.restart.max_retries", "within 5 minutes; default 10"),
		done("processes", inGroups),
	),
	within("files",
		into("guest_path", "config.files", "where it is in the machine; required"),
		into("local_path", "config.files", "its content, from a file beside the configuration or below it"),
		into("raw_value", "config.files", "its content, as it is"),
		into("secret_name", "config.files", "its content, from a secret that is base64"),
		done("processes", inGroups),
	),
	within("metrics",
		asAPI("port", "config.metrics"),
		asAPI("path", "config.metrics"),
		asAPI("https", "config.metrics"),
		done("processes", inGroups),
	),
	within("statics",
		asAPI("guest_path", "config.statics[]"),
		asAPI("url_prefix", "config.statics[]"),
		asAPI("tigris_bucket", "config.statics[]"),
		asAPI("index_document", "config.statics[]"),
	),
	within("experimental",
		into("cmd", "config.init.cmd", "the command of groups without one"),
		into("entrypoint", "config.init.entrypoint", "instead of the image's"),
		into("exec", "config.init.exec", "instead of entrypoint and command"),
		not("auto_rollback", "a failed deploy returns what it has changed, unless its command line says otherwise", "true"),
		not("enable_consul", "there is no Consul here"),
		not("lazy_load_images", "images are pulled whole before a machine starts"),
		done("machine_config", "as `machine_config`"),
		not("attached", "apps do not give each other secrets: set them with bourse secrets set"),
		not("attached.secrets", "apps do not give each other secrets: set them with bourse secrets set"),
		not("attached.secrets.export", "apps do not give each other secrets: set them with bourse secrets set"),
		not("attached.secrets.export.*", "apps do not give each other secrets: set them with bourse secrets set"),
		ignored("enable_etcd", "there is no etcd here"),
		ignored("use_zstd", "the builder that is found chooses how layers are compressed"),
		ignored("allowed_public_ports", "no client reads it any more"),
		ignored("private_network", "every app has a private network"),
		ignored("kill_timeout", "no client reads it here any more: write it at the top"),
	),
	within("groups",
		ours("processes", "the process groups that it is for; default: all that no other names"),
		ours("regions", "regions, each with `count` machines; default: `primary_region`"),
		ours("count", "machines in each of `regions`; default 1 with `regions`, otherwise those that are there stay"),
		ours("counts", "machines by region, instead of `regions` and `count`"),
		ours("counts.*", "machines in one region"),
		ours("spare", "a second machine where there is no count: another that serves, or one that stands by; default true, without mounts"),
		ours("requirements", "as `requirements`, for these groups"),
		ours("requirements.*", "one label or countable"),
	),
)

// serviceFields returns the fields that all kinds of services have in common.
func serviceFields() []Field {
	return slices.Concat([]Field{
		into("internal_port", "config.services", "the machine's port; default 8080, and of image `host` what its $PORT says, as 0 does"),
		into("auto_stop_machines", "config.services", "what becomes of machines that no one uses: `off` (default), `stop`, `suspend`; false and true mean the first two"),
		into("auto_start_machines", "config.services", "a request starts a machine; default true"),
		into("min_machines_running", "config.services", "so many are left running in the primary region"),
		done("processes", inServices),
		into("concurrency", "config.services", "how much a machine is given at once"),
		into("concurrency.type", "config.services", "`connections` (default) or `requests`"),
		into("concurrency.soft_limit", "config.services", "from so many on others are preferred; default 20"),
		into("concurrency.hard_limit", "config.services", "from so many on it is given no more"),
		not("machine_checks", noTrial),
	}, within("machine_checks", trialFields()...))
}

func checkTimes(section string) []Field {
	list := []Field{
		into("interval", "config.checks", "from one to the next; default 15s"),
		into("timeout", "config.checks", "of one; default 2s"),
		into("grace_period", "config.checks", "after a start, in which a failure does not count; default 1s"),
	}
	if section == "" {
		return list
	}
	return within(section, list...)
}

func checkFields(section string) []Field {
	list := append(checkTimes(""),
		into("method", "config.checks", "default GET"),
		into("path", "config.checks", "default /"),
		into("protocol", "config.checks", "`http` (default) or `https`"),
		into("tls_skip_verify", "config.checks", "any certificate is accepted"),
		into("tls_server_name", "config.checks", "the name that the certificate is to have"),
		into("headers", "config.checks", "of the request: a text or a list of them by name"),
		into("headers.*", "config.checks", "one of them"),
	)
	if section == "" {
		return list
	}
	return within(section, list...)
}

func trialFields() []Field {
	return []Field{not("image", noTrial), not("entrypoint", noTrial), not("command", noTrial), not("kill_signal", noTrial), not("kill_timeout", noTrial)}
}

func vmFields() []Field {
	return []Field{
		into("size", "config.guest", "such as shared-cpu-2x or performance-1x; the fields below change it"),
		into("memory", "config.guest.memory_mb", "a size such as 512mb, or a number of megabytes"),
		into("memory_mb", "config.guest.memory_mb", "the same in megabytes"),
		asAPI("max_memory_mb", "config.guest.max_memory_mb"),
		into("cpus", "config.guest.cpus", "how many"),
		into("cpu_kind", "config.guest.cpu_kind", "`shared` (default) or `performance`"),
		into("gpus", "config.guest.gpus", "how many; default 1 where there is a gpu_kind"),
		into("gpu_kind", "config.guest.gpu_kind", "as workers name theirs"),
		asAPI("kernel_args", "config.guest.kernel_args"),
		asAPI("host_dedication_id", "config.guest.host_dedication_id"),
		asAPI("persist_rootfs", "config.guest.persist_rootfs"),
		done("processes", "the process groups that it is for; default: all that no other names"),
	}
}

func tlsFields(section string) []Field {
	return within(section,
		into("alpn", "config.services", "protocols that are offered"),
		into("versions", "config.services", "`TLSv1.2`, `TLSv1.3`; default both"),
		into("default_self_signed", "config.services", "a certificate of its own where there is no other"),
	)
}

func httpFields(section string) []Field {
	return within(section,
		into("compress", "config.services", "replies are compressed"),
		into("h2_backend", "config.services", "machines speak HTTP/2 without TLS, as gRPC does"),
		into("idle_timeout", "config.services", "seconds of a connection without bytes"),
		asAPI("headers_read_timeout", "config.services[].ports[].http_options.headers_read_timeout"),
		into("response", "config.services", "what becomes of replies' headers"),
		into("response.headers", "config.services", "headers that are set, or removed with false"),
		into("response.headers.*", "config.services", "one of them"),
		into("response.pristine", "config.services", "no header of the proxy's is added"),
		into("replay_cache", "config.services", "where requests were replayed to is kept"),
		into("replay_cache.path_prefix", "config.services", "of the requests"),
		into("replay_cache.ttl_seconds", "config.services", "for how long"),
		into("replay_cache.type", "config.services", "by a `header` or a `cookie`"),
		into("replay_cache.name", "config.services", "its name"),
		into("replay_cache.allow_bypass", "config.services", "a client may ask to be served without it"),
	)
}
