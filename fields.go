package bourse

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// FieldTreatment specifies how a JSON member of a machine request is handled.
type FieldTreatment string

// Treatments. A member is refused if ignoring it could lose data or give a false sense of security.
const (
	FieldSupported FieldTreatment = "acted on"
	FieldStored    FieldTreatment = "kept"    // the member is stored and returned, but has no other effect
	FieldRefused   FieldTreatment = "refused" // the request fails with CodeInvalid, before anything is stored
)

// Field specifies how one or more JSON members of a machine request are handled for each kind of
// image.
type Field struct {
	Path              string // such as config.guest.cpus; [] is each item of a list, * each name of a map
	Members           string // members below Path to which this entry applies, separated by spaces; empty if it applies to Path itself
	Host, Pull, Image FieldTreatment
	Reason            string   // why the members are not supported for every kind of image
	NoEffect          []string // values that have no effect, in addition to empty ones
}

// TreatmentFor returns the treatment for a kind of image.
func (f *Field) TreatmentFor(kind ImageKind) FieldTreatment {
	switch kind {
	case HostImage:
		return f.Host
	case PollerImage:
		return f.Pull
	case RegistryImage:
	}
	return f.Image
}

// Err returns the CodeInvalid error for a refused member.
func (f *Field) Err() error {
	return Errorf(CodeInvalid, "invalid %s: %s", f.Name(), f.Reason)
}

// FieldOf returns the entry for a member, or nil if there is none. Names are case-insensitive, as
// in encoding/json.
func FieldOf(path string) *Field { return fieldsByPath[strings.ToLower(path)] }

// HasMembers reports whether f describes the object at path and, for this kind of image, the
// object's members have entries of their own.
func (f *Field) HasMembers(path string, kind ImageKind) bool {
	return f.Members != "" && f.TreatmentFor(kind) == FieldSupported && strings.EqualFold(f.Path, path)
}

// Name returns the path for use in messages, without a trailing [], . or *.
func (f *Field) Name() string { return strings.TrimRight(f.Path, "[].*") }

// Warning reports that a member of a request has no effect.
type Warning struct {
	Field   string `json:"field"` // such as config.guest.kernel_args
	Message string `json:"message"`
}

// String returns the warning as a single line.
func (w Warning) String() string { return w.Field + ": " + w.Message }

var fieldsByPath = func() map[string]*Field {
	out := map[string]*Field{}
	for i := range fields {
		f := &fields[i]
		out[f.Path] = f
		for below := range strings.FieldsSeq(f.Members) {
			out[f.Path+"."+below] = f
		}
	}
	return out
}()

// Fields returns the entries for all JSON members of a machine request. They are in the order of
// docs/compatibility.md, which is generated from them.
func Fields() []Field { return slices.Clone(fields) }

var fields = slices.Concat(
	fieldsLike(FieldSupported, "", "name", "region", "skip_launch", "skip_service_registration", "skip_secrets", "lease_ttl", "current_version"),
	byImage(FieldSupported, FieldRefused, FieldSupported, "secrets are not sent to a poller's host", "min_secrets_version"),

	fieldsLike(FieldSupported, "", "config.image", "config.size", "config.guest.cpu_kind", "config.guest.cpus", "config.guest.memory_mb"),
	byImage(FieldSupported, FieldStored, FieldSupported, "only CPUs, memory and disk can be requested from a poller", "config.guest.gpus", "config.guest.gpu_kind"),
	fieldsLike(FieldStored, "a machine's memory is fixed at memory_mb", "config.guest.max_memory_mb"),
	fieldsLike(FieldStored, "the worker chooses the kernel and its arguments", "config.guest.kernel_args", "config.init.kernel_args"),
	fieldsLike(FieldRefused, "workers are chosen by their labels: use requirements", "config.guest.host_dedication_id", "config.guest.required_host_features"),
	[]Field{
		{"config.guest.persist_rootfs", "", FieldRefused, FieldRefused, FieldRefused, notPersisted, neverPersisted},
		{"config.rootfs.persist", "", FieldRefused, FieldRefused, FieldRefused, notPersisted, neverPersisted},
	},
	byImage(FieldStored, FieldSupported, FieldSupported, "a host program writes to the host's own file systems", "config.rootfs.size_gb"),
	byImage(FieldRefused, FieldRefused, FieldSupported, "only a machine with a registry image has its own root file system", "config.rootfs.read_only"),

	fieldsLike(FieldSupported, "", "config.init.exec", "config.init.entrypoint", "config.init.cmd", "config.init.working_dir"),
	byImage(FieldSupported, FieldRefused, FieldSupported, "the poller decides which user runs the program", "config.init.user"),
	byImage(FieldStored, FieldStored, FieldSupported, "only a machine with a registry image has its own terminal", "config.init.tty"),
	fieldsLike(FieldStored, "a machine has no swap: memory_mb is its total memory", "config.init.swap_size_mb"),
	fieldsLike(FieldSupported, "", "config.env", "config.metadata", "config.requirements"),
	[]Field{{"config.task", "name concurrency port protocol timeout", FieldSupported, FieldRefused, FieldSupported, "a program that a poller runs cannot be reached", nil}},
	byImage(FieldRefused, FieldRefused, FieldSupported, "only containerd supports runtimes", "config.runtime"),
	byImage(FieldStored, FieldStored, FieldSupported, "only images run in virtual machines", "config.allow_emulation"),

	fieldsLike(FieldSupported, "", "config.auto_destroy", "config.restart.policy", "config.restart.max_retries"),
	fieldsLike(FieldStored, "there are no spot prices", "config.restart.gpu_bid_price", "config.spot.max_price_fraction"),
	fieldsLike(FieldSupported, "", "config.stop_config.timeout"),
	byImage(FieldSupported, FieldStored, FieldSupported, "the poller decides how to stop its job", "config.stop_config.signal"),
	fieldsLike(FieldSupported, "", "config.schedule"),
	byImage(FieldSupported, FieldRefused, FieldSupported, "if a poller is lost, the next poller that asks for work replaces it", "config.standbys"),
	[]Field{{
		"config.processes[]",
		"exec entrypoint cmd user env secrets[].env_var secrets[].name env_from[].env_var env_from[].field_ref ignore_app_secrets",
		FieldSupported, FieldRefused, FieldSupported, "a poller's job is defined by config.init alone", nil,
	}},
	fieldsLike(FieldRefused, "a machine runs one program: create a machine for each container", "config.containers"),
	fieldsLike(FieldRefused, "a machine runs one program: there are no other containers to share directories with", "config.volumes"),

	byImage(FieldSupported, FieldRefused, FieldSupported, "a poller has no access to volumes",
		"config.mounts[].volume", "config.mounts[].path", "config.mounts[].name", "config.mounts[].size_gb", "config.mounts[].encrypted"),
	byImage(FieldSupported, FieldRefused, FieldSupported, "a poller has no access to volumes",
		"config.mounts[].extend_threshold_percent", "config.mounts[].add_size_gb", "config.mounts[].size_gb_limit"),
	fieldsLike(FieldStored, "volumes grow by add_size_gb", "config.mounts[].add_size_percent", "config.mounts[].min_add_size_gb"),
	byImage(FieldRefused, FieldRefused, FieldSupported, "only a machine with a registry image has its own file system",
		"config.files[].guest_path", "config.files[].raw_value", "config.files[].secret_name", "config.files[].mode"),
	fieldsLike(FieldRefused, "files cannot be created from an image's config yet", "config.files[].image_config"),
	fieldsLike(FieldStored, "there is no cache drive", "config.cache_drive.size_mb"),

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
		FieldSupported, FieldStored, FieldSupported, "proxies cannot reach a program that a poller runs", nil,
	}},
	fieldsLike(FieldStored, "a proxy has one time limit for the headers of all requests", "config.services[].ports[].http_options.headers_read_timeout"),
	fieldsLike(FieldStored, "clients select a machine with the header fly-force-instance-id",
		"config.services[].force_instance_key", "config.services[].force_instance_description"),
	[]Field{
		{"config.services[].checks[]", checkFields, FieldSupported, FieldStored, FieldSupported, notChecked, nil},
		{"config.checks.*", "kind " + checkFields, FieldSupported, FieldStored, FieldSupported, notChecked, nil},
	},
	fieldsLike(FieldStored, "set autostart to false in each service instead", "config.disable_machine_autostart"),
	storedField("proxies have no access to the files in an image, so the machine's program must serve them", "config.statics[]", "guest_path url_prefix tigris_bucket index_document"),
	storedField("a program's own metrics are not collected yet", "config.metrics", "port path https"),

	byImage(FieldStored, FieldStored, FieldSupported, hostNames,
		"config.dns.skip_registration", "config.dns.nameservers", "config.dns.searches", "config.dns.hostname", "config.dns.hostname_fqdn"),
	[]Field{{"config.dns.options[]", "name value", FieldStored, FieldStored, FieldSupported, hostNames, nil}},
	fieldsLike(FieldStored, "DNS forwarding rules are not supported yet", "config.dns.dns_forward_rules"),
)

const (
	checkFields = "port type interval timeout grace_period method path protocol tls_skip_verify tls_server_name headers[].name headers[].values"
	hostNames   = "a machine without its own address uses its host's names and DNS settings"
	notChecked  = "the ports of a program that a poller runs cannot be reached"
)

const notPersisted = "a machine's root file system is recreated from its image at each start: use a volume for persistent data"

// neverPersisted contains the values of persist and persist_rootfs that disable persistence. They
// are accepted, because they have no effect.
var neverPersisted = []string{"never", "none", "1"}

// fieldsLike returns a field for each path. All kinds of images get the same treatment.
func fieldsLike(t FieldTreatment, reason string, paths ...string) []Field {
	return byImage(t, t, t, reason, paths...)
}

func byImage(host, pull, image FieldTreatment, reason string, paths ...string) []Field {
	out := make([]Field, len(paths))
	for i, path := range paths {
		out[i] = Field{Path: path, Host: host, Pull: pull, Image: image, Reason: reason}
	}
	return out
}

// storedField returns a field for a member that is stored together with all members below it.
func storedField(reason, path, below string) []Field {
	return []Field{{Path: path, Members: below, Host: FieldStored, Pull: FieldStored, Image: FieldStored, Reason: reason}}
}

// bareConfig is a Config without methods.
type bareConfig Config

// UnmarshalJSON decodes a config. Members without a field are stored in Rest, so a client that
// reads, modifies and sends back a config does not lose any members.
func (c *Config) UnmarshalJSON(raw []byte) error {
	c.Rest = nil
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if strict.Decode((*bareConfig)(c)) == nil { // this succeeds for most configs, because they contain only known members
		return nil
	}
	if err := json.Unmarshal(raw, (*bareConfig)(c)); err != nil {
		return err
	}
	rest, err := encodePlain(unknownMembers(raw, reflect.TypeFor[bareConfig]()))
	if err == nil && string(rest) != "null" {
		c.Rest = rest
	}
	return err
}

// MarshalJSON encodes a config, including the members in Rest.
func (c Config) MarshalJSON() ([]byte, error) {
	raw, err := encodePlain(bareConfig(c))
	if err != nil || len(c.Rest) == 0 {
		return raw, err
	}
	var whole, rest any
	if err := decodeNumbers(raw, &whole); err != nil {
		return nil, err
	}
	if err := decodeNumbers(c.Rest, &rest); err != nil {
		return nil, err
	}
	restore(whole, rest, reflect.TypeFor[bareConfig]())
	return encodePlain(whole)
}

// encodePlain encodes v without escaping HTML, so that stored members are returned unchanged.
func encodePlain(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}

// decodeNumbers decodes JSON. Numbers become json.Number, so that they can be encoded again
// unchanged.
func decodeNumbers(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}

// UnknownMembers returns the members of raw for which the type of v has no fields. raw is a JSON
// value that was decoded into v. If raw is an object, the result is a map of its unknown members,
// and of its members whose values contain some. If raw is an array, the result is a list with one
// element for each item, which is nil if the item contains no unknown members. If raw contains no
// unknown members at all, the result is nil. A type with its own UnmarshalJSON is assumed to have
// no unknown members.
func UnknownMembers(raw []byte, v any) any { return unknownMembers(raw, reflect.TypeOf(v)) }

// unknownMembers is like UnknownMembers, for a JSON value of type t.
func unknownMembers(raw []byte, t reflect.Type) any {
	switch t = target(t); {
	case t == nil:
	case t.Kind() == reflect.Struct:
		var members map[string]json.RawMessage
		_ = json.Unmarshal(raw, &members) // cannot fail, because raw was already decoded as a value of type t
		out := map[string]any{}
		for name, value := range members {
			field, known := fieldOf(t, name)
			if !known {
				var v any
				if decodeNumbers(value, &v) == nil {
					out[name] = v
				}
			} else if v := unknownMembers(value, field.Type); v != nil {
				out[fieldName(field)] = v
			}
		}
		if len(out) > 0 {
			return out
		}
	case t.Kind() == reflect.Slice:
		var items []json.RawMessage
		_ = json.Unmarshal(raw, &items)
		out, found := make([]any, len(items)), false
		for i, item := range items {
			out[i] = unknownMembers(item, t.Elem())
			found = found || out[i] != nil
		}
		if found {
			return out
		}
	}
	return nil
}

// restore adds the members in rest to whole. rest is a result of unknownMembers, and whole is the
// decoded JSON of a value of type t. If whole no longer contains the object to which a member
// belonged, restore omits the member.
func restore(whole, rest any, t reflect.Type) {
	t = target(t)
	switch rest := rest.(type) {
	case map[string]any:
		into, ok := whole.(map[string]any)
		if !ok || t == nil || t.Kind() != reflect.Struct {
			return
		}
		for name, value := range rest {
			if field, known := fieldOf(t, name); known {
				restore(into[fieldName(field)], value, field.Type)
			} else {
				into[name] = value
			}
		}
	case []any:
		into, ok := whole.([]any)
		if !ok || t == nil || t.Kind() != reflect.Slice {
			return
		}
		for i := range min(len(into), len(rest)) {
			restore(into[i], rest[i], t.Elem())
		}
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// target returns t, or the type to which t points. If that type has its own UnmarshalJSON, it
// returns nil.
func target(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	return t
}

// fieldOf returns the field of t into which encoding/json decodes a member with the given name. It
// returns false if there is none.
func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	var folded reflect.StructField
	for _, f := range reflect.VisibleFields(t) {
		switch has := fieldName(f); {
		case f.Anonymous || has == "-":
		case has == name:
			return f, true
		case strings.EqualFold(has, name):
			folded = f
		}
	}
	return folded, folded.Name != ""
}

func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
