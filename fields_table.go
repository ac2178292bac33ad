package bourse

import "slices"

// Fields returns the table of what a request for a machine may have, in the order
// in which documents show it: docs/compatibility.md is written from it.
func Fields() []Field { return slices.Clone(fields) }

var fields = slices.Concat(
	alike(ActedOn, "", "name", "region", "skip_launch", "skip_service_registration", "skip_secrets", "lease_ttl", "current_version"),
	byImage(ActedOn, Refused, ActedOn, "secrets are not given to a poller's host", "min_secrets_version"),

	alike(ActedOn, "", "config.image", "config.size", "config.guest.cpu_kind", "config.guest.cpus", "config.guest.memory_mb"),
	byImage(ActedOn, JustKept, ActedOn, "a poller is asked for cpus, memory and disk only", "config.guest.gpus", "config.guest.gpu_kind"),
	alike(JustKept, "a machine's memory does not grow: memory_mb is what it has", "config.guest.max_memory_mb"),
	alike(JustKept, "a machine has no kernel of its own", "config.guest.kernel_args", "config.init.kernel_args"),
	alike(Refused, "workers are chosen by their labels: use requirements", "config.guest.host_dedication_id", "config.guest.required_host_features"),
	[]Field{
		{"config.guest.persist_rootfs", "", Refused, Refused, Refused, notPersisted, neverPersisted},
		{"config.rootfs.persist", "", Refused, Refused, Refused, notPersisted, neverPersisted},
	},
	byImage(JustKept, ActedOn, ActedOn, "a program of the host writes to the host's own file systems", "config.rootfs.size_gb"),
	byImage(Refused, Refused, ActedOn, "only a machine of a registry's image has a root file system of its own", "config.rootfs.read_only"),

	alike(ActedOn, "", "config.init.exec", "config.init.entrypoint", "config.init.cmd", "config.init.working_dir"),
	byImage(ActedOn, Refused, ActedOn, "the poller decides as which user a program runs", "config.init.user"),
	byImage(JustKept, JustKept, ActedOn, "only the program of a registry's image has a terminal of its own", "config.init.tty"),
	alike(JustKept, "a machine has no swap: memory_mb is all that it has", "config.init.swap_size_mb"),
	alike(ActedOn, "", "config.env", "config.metadata", "config.requirements"),
	[]Field{{"config.task", "name concurrency port protocol timeout", ActedOn, Refused, ActedOn, "the program of a poller cannot be reached", nil}},
	byImage(Refused, Refused, ActedOn, "only containerd has runtimes", "config.runtime"),

	alike(ActedOn, "", "config.auto_destroy", "config.restart.policy", "config.restart.max_retries"),
	alike(JustKept, "there are no spot prices", "config.restart.gpu_bid_price", "config.spot.max_price_fraction"),
	alike(ActedOn, "", "config.stop_config.timeout"),
	byImage(ActedOn, JustKept, ActedOn, "a poller ends its job in its own way", "config.stop_config.signal"),
	alike(ActedOn, "", "config.schedule"),
	byImage(ActedOn, Refused, ActedOn, "a poller that is lost is replaced by the next one that asks for work", "config.standbys"),
	[]Field{{
		"config.processes[]",
		"exec entrypoint cmd user env secrets[].env_var secrets[].name env_from[].env_var env_from[].field_ref ignore_app_secrets",
		ActedOn, Refused, ActedOn, "a poller's job is what its init says", nil,
	}},
	alike(Refused, "a machine has one program: make a machine for each", "config.containers"),
	alike(Refused, "a machine has one program, which shares its directories with no other", "config.volumes"),

	byImage(ActedOn, Refused, ActedOn, "a volume is not where a poller runs",
		"config.mounts[].volume", "config.mounts[].path", "config.mounts[].name", "config.mounts[].size_gb", "config.mounts[].encrypted"),
	byImage(ActedOn, Refused, ActedOn, "a volume is not where a poller runs",
		"config.mounts[].extend_threshold_percent", "config.mounts[].add_size_gb", "config.mounts[].size_gb_limit"),
	alike(JustKept, "volumes grow by add_size_gb", "config.mounts[].add_size_percent", "config.mounts[].min_add_size_gb"),
	byImage(Refused, Refused, ActedOn, "only a machine of a registry's image has a file system of its own",
		"config.files[].guest_path", "config.files[].raw_value", "config.files[].secret_name", "config.files[].mode"),
	alike(Refused, "files are not made of an image's config yet", "config.files[].image_config"),
	alike(JustKept, "there is no cache drive", "config.cache_drive.size_mb"),

	[]Field{{
		"config.services[]",
		"protocol internal_port autostop autostart min_machines_running " +
			"concurrency.type concurrency.hard_limit concurrency.soft_limit ports[].port ports[].start_port ports[].end_port ports[].handlers " +
			"ports[].force_https ports[].proxy_proto_options.version ports[].tls_options.alpn ports[].tls_options.versions " +
			"ports[].tls_options.default_self_signed ports[].http_options.compress ports[].http_options.h2_backend " +
			"ports[].http_options.idle_timeout ports[].http_options.response.headers " +
			"ports[].http_options.response.pristine ports[].http_options.replay_cache[].path_prefix " +
			"ports[].http_options.replay_cache[].ttl_seconds ports[].http_options.replay_cache[].type " +
			"ports[].http_options.replay_cache[].name ports[].http_options.replay_cache[].allow_bypass",
		ActedOn, JustKept, ActedOn, "no proxy reaches a machine that runs where its poller is", nil,
	}},
	alike(JustKept, "a proxy has one limit for the headers of all requests", "config.services[].ports[].http_options.headers_read_timeout"),
	alike(JustKept, "a request names its machine with fly-force-instance-id",
		"config.services[].force_instance_key", "config.services[].force_instance_description"),
	[]Field{
		{"config.services[].checks[]", checkFields, ActedOn, JustKept, ActedOn, notChecked, nil},
		{"config.checks.*", "kind " + checkFields, ActedOn, JustKept, ActedOn, notChecked, nil},
	},
	alike(JustKept, "services decide it: set autostart to false in each", "config.disable_machine_autostart"),
	keptWhole("a proxy has none of the files of a machine's image: its program serves them", "config.statics[]", "guest_path url_prefix tigris_bucket index_document"),
	keptWhole("no one collects a program's own metrics yet", "config.metrics", "port path https"),

	byImage(JustKept, JustKept, ActedOn, hostNames,
		"config.dns.skip_registration", "config.dns.nameservers", "config.dns.searches", "config.dns.hostname", "config.dns.hostname_fqdn"),
	[]Field{{"config.dns.options[]", "name value", JustKept, JustKept, ActedOn, hostNames, nil}},
	alike(JustKept, "names are not forwarded yet", "config.dns.dns_forward_rules"),
)

const (
	checkFields = "port type interval timeout grace_period method path protocol tls_skip_verify tls_server_name headers[].name headers[].values"
	hostNames   = "a machine without an address of its own has the names of its host"
	notChecked  = "there is no way to the ports of a poller's program"
)

const notPersisted = "a machine's root file system is made from its image at each start: what must last is kept on a volume"

// neverPersisted are the ways to write that nothing persists.
var neverPersisted = []string{"never", "none", "1"}

// alike are fields that are treated alike whatever the image is.
func alike(t Treatment, reason string, paths ...string) []Field {
	return byImage(t, t, t, reason, paths...)
}

func byImage(host, pull, image Treatment, reason string, paths ...string) []Field {
	out := make([]Field, len(paths))
	for i, path := range paths {
		out[i] = Field{Path: path, Host: host, Pull: pull, Image: image, Reason: reason}
	}
	return out
}

// keptWhole is a member that is kept with all below it.
func keptWhole(reason, path, below string) []Field {
	return []Field{{Path: path, Below: below, Host: JustKept, Pull: JustKept, Image: JustKept, Reason: reason}}
}
