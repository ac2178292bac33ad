package workload

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// ServiceConfig is an item of config.services.
type ServiceConfig struct {
	Protocol                 string        `json:"protocol,omitempty"`
	InternalPort             int           `json:"internal_port"`
	Autostop                 Autostop      `json:"autostop,omitempty"`
	Autostart                *bool         `json:"autostart,omitempty"`
	MinRunning               *int          `json:"min_machines_running,omitempty"`
	Ports                    []PortConfig  `json:"ports,omitempty"`
	Concurrency              *Concurrency  `json:"concurrency,omitempty"`
	Checks                   []CheckConfig `json:"checks,omitempty"`
	ForceInstanceKey         *string       `json:"force_instance_key,omitempty"`
	ForceInstanceDescription *string       `json:"force_instance_description,omitempty"`
}

// Package deploy/config uses the tags "in" and "quoted" of the types below, because configuration files contain tables
// of the same types.

// PortConfig is an item of config.services[].ports.
type PortConfig struct {
	Port       *int        `json:"port,omitempty" in:"1..65535" quoted:"too"`
	First      *int        `json:"start_port,omitempty" in:"1..65535"`
	Last       *int        `json:"end_port,omitempty" in:"1..65535"`
	Handlers   []Handler   `json:"handlers,omitempty" in:"http|tls|pg_tls|proxy_proto|edge_http"`
	ForceHTTPS bool        `json:"force_https,omitempty"`
	TLS        *TLSOptions `json:"tls_options,omitempty"`
	HTTP       *HTTPConfig `json:"http_options,omitempty"`
	ProxyProto *ProxyProto `json:"proxy_proto_options,omitempty"`
}

// Concurrency limits the number of requests or connections that a proxy sends to a machine at the
// same time.
type Concurrency struct {
	Type string `json:"type,omitempty" in:"connections|requests"`
	Hard int    `json:"hard_limit,omitempty" in:"0..1000000000"` // maximum for each machine; 0 means no limit
	Soft int    `json:"soft_limit,omitempty" in:"0..1000000000"` // beyond this limit, proxies prefer other machines
}

// TLSOptions configures handler tls.
type TLSOptions struct {
	ALPN       []string `json:"alpn,omitempty"`                          // default with handler http: h2 and http/1.1; otherwise no default
	Versions   []string `json:"versions,omitempty" in:"TLSv1.2|TLSv1.3"` // default: both
	SelfSigned *bool    `json:"default_self_signed,omitempty"`           // whether to use a self-signed certificate if there is no other certificate
}

// ProxyProto selects the version of the PROXY protocol header for handler proxy_proto.
type ProxyProto struct {
	Version string `json:"version,omitempty" in:"v1|v2"`
}

// HTTPConfig configures handler http.
type HTTPConfig struct {
	Compress    *bool         `json:"compress,omitempty"`
	H2Backend   *bool         `json:"h2_backend,omitempty"`
	IdleTimeout *uint32       `json:"idle_timeout,omitempty" in:"0..86400"`         // in seconds
	HeadersRead *uint32       `json:"headers_read_timeout,omitempty" in:"0..86400"` // in seconds
	Response    *HTTPResponse `json:"response,omitempty"`
	ReplayCache []ReplayCache `json:"replay_cache,omitempty"`
}

// HTTPResponse configures changes to response headers.
type HTTPResponse struct {
	Headers  map[string]Edit `json:"headers,omitempty"`
	Pristine *bool           `json:"pristine,omitempty"` // whether the proxy must not add its own headers to replies
}

// ReplayCache configures a proxy to cache the destination of a replayed request. The proxy sends later requests with
// the same path prefix, and with the same value of the named header or cookie, to this destination.
type ReplayCache struct {
	PathPrefix  string `json:"path_prefix,omitempty"`
	TTLSeconds  int    `json:"ttl_seconds,omitempty" in:"10..31536000"`
	Type        string `json:"type,omitempty" in:"header|cookie"`
	Name        string `json:"name,omitempty"`
	AllowBypass bool   `json:"allow_bypass,omitempty"`
}

// Edit sets a response header to the listed values, or removes the header if the list is empty.
type Edit []string

// MarshalJSON writes false if there are no values, a string if there is one, and a list otherwise.
func (e Edit) MarshalJSON() ([]byte, error) {
	switch len(e) {
	case 0:
		return []byte("false"), nil
	case 1:
		return json.Marshal(e[0])
	}
	return json.Marshal([]string(e))
}

// UnmarshalJSON accepts the formats that MarshalJSON produces.
func (e *Edit) UnmarshalJSON(b []byte) error {
	*e = Edit{}
	var one string
	switch {
	case string(b) == "false":
	case json.Unmarshal(b, &one) == nil:
		*e = Edit{one}
	case json.Unmarshal(b, (*[]string)(e)) != nil:
		return wrongType(b)
	}
	return nil
}

// CheckConfig is a value of config.checks, or an item of config.services[].checks.
type CheckConfig struct {
	Type          string    `json:"type,omitempty"`
	Kind          CheckKind `json:"kind,omitempty"`
	Port          int       `json:"port,omitempty"`
	Interval      Duration  `json:"interval,omitempty"`
	Timeout       Duration  `json:"timeout,omitempty"`
	Grace         Duration  `json:"grace_period,omitempty"`
	Method        string    `json:"method,omitempty"`
	Path          string    `json:"path,omitempty"`
	Protocol      string    `json:"protocol,omitempty"`
	TLSSkipVerify *bool     `json:"tls_skip_verify,omitempty"`
	TLSServerName string    `json:"tls_server_name,omitempty"`
	Headers       []Header  `json:"headers,omitempty"`
}

// Header is a header of a check's request.
type Header struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// processConfig is an item of config.processes.
type processConfig struct {
	Exec             []string          `json:"exec"`
	Entrypoint       []string          `json:"entrypoint"`
	Cmd              []string          `json:"cmd"`
	User             string            `json:"user"`
	Env              map[string]string `json:"env"`
	Secrets          []Secret          `json:"secrets"`
	IgnoreAppSecrets bool              `json:"ignore_app_secrets"`
	EnvFrom          []struct {
		EnvVar   string `json:"env_var"`
		FieldRef string `json:"field_ref"`
	} `json:"env_from"`
}

// Metrics is config.metrics: the port and path at which a program serves its own metrics.
type Metrics struct {
	Port  int    `json:"port,omitempty" in:"1..65535"`
	Path  string `json:"path"`
	HTTPS bool   `json:"https,omitempty"`
}

// Static is an item of config.statics: a directory of static files in the image. Proxies do not serve these files.
type Static struct {
	GuestPath     string `json:"guest_path"`
	URLPrefix     string `json:"url_prefix"`
	TigrisBucket  string `json:"tigris_bucket,omitempty"`
	IndexDocument string `json:"index_document,omitempty"`
}

// rest contains those members of [bourse.StoredConfig.Rest] that Machines API clients decode.
type rest struct {
	Guest *struct {
		MaxMemoryMB      int      `json:"max_memory_mb"`
		HostDedicationID string   `json:"host_dedication_id"`
		PersistRootfs    any      `json:"persist_rootfs"` // refused if it is not empty
		KernelArgs       []string `json:"kernel_args"`
	} `json:"guest"`
	Init struct {
		SwapSizeMB *int     `json:"swap_size_mb"`
		KernelArgs []string `json:"kernel_args"`
	} `json:"init"`
	Restart *struct {
		GPUBidPrice float32 `json:"gpu_bid_price"`
	} `json:"restart"`
	Files []*struct {
		ImageConfig *string `json:"image_config"`
	} `json:"files"`
	CacheDrive *struct {
		SizeMB uint64 `json:"size_mb"`
	} `json:"cache_drive"`
	Spot *struct {
		MaxPriceFraction float64 `json:"max_price_fraction"`
	} `json:"spot"`
	DisableMachineAutostart *bool `json:"disable_machine_autostart"`
}

// Duration is a [bourse.Duration] that refuses an empty string, which clients cannot decode.
type Duration bourse.Duration

// MarshalJSON writes a string such as "1m30s".
func (d Duration) MarshalJSON() ([]byte, error) { return bourse.Duration(d).MarshalJSON() }

// UnmarshalJSON reads a Go duration string or nanoseconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if string(b) == `""` || (*bourse.Duration)(d).UnmarshalJSON(b) != nil {
		return wrongType(b)
	}
	return nil
}

// wrongType returns the error for a value of the wrong type. The decoder adds the path.
func wrongType(b []byte) error {
	return &json.UnmarshalTypeError{Value: "value " + bourse.Quoted(strings.Trim(string(b), `"`))}
}

// Validate returns CodeInvalid if Machines API clients could not decode one of the members; the message contains the
// member's path. A single value of the wrong type would make every client fail to list the app's machines.
func Validate(k *bourse.StoredConfig) error {
	_, services := servicesIn(k)
	_, checks := checksIn(k)
	_, processes := processesIn(k)
	return cmp.Or(services, checks, processes,
		unsupportedItems("config.containers", k.Containers), unsupportedItems("config.volumes", k.Volumes),
		checkShape[*Metrics]("config.metrics", k.Metrics),
		checkShape[[]*Static]("config.statics", k.Statics), checkShape[rest]("config", k.Rest))
}

// ServiceConfigs returns config.services without filling in the defaults.
func ServiceConfigs(c *bourse.Config) []ServiceConfig {
	list, _ := servicesIn(&c.StoredConfig)
	return list
}

// CheckConfigs returns config.checks without filling in the defaults.
func CheckConfigs(c *bourse.Config) map[string]CheckConfig {
	list, _ := checksIn(&c.StoredConfig)
	return list
}

func servicesIn(k *bourse.StoredConfig) ([]ServiceConfig, error) {
	return decode[[]ServiceConfig]("config.services", k.Services)
}

// checksIn decodes config.checks. It decodes each check separately, because the decoder's errors do not contain the
// keys of a map.
func checksIn(k *bourse.StoredConfig) (map[string]CheckConfig, error) {
	all, err := decode[map[string]json.RawMessage]("config.checks", k.Checks)
	out := make(map[string]CheckConfig, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if out[name], err = decode[CheckConfig]("config.checks."+name, all[name]); err != nil {
			return nil, err
		}
	}
	return out, err
}

func processesIn(k *bourse.StoredConfig) ([]processConfig, error) {
	return decode[[]processConfig]("config.processes", k.Processes)
}

func checkShape[T any](path string, raw json.RawMessage) error {
	_, err := decode[T](path, raw)
	return err
}

// unsupportedItems returns an error if the list at path is not empty. It is called for lists whose items are not
// supported.
func unsupportedItems(path string, raw json.RawMessage) error {
	list, err := decode[[]json.RawMessage](path, raw)
	if len(list) > 0 {
		return bourse.FieldOf(path).Err()
	}
	return err
}

// decode decodes a config member. For a missing member, it returns the zero value. Its errors have CodeInvalid, and
// contain the path of the value that cannot be decoded.
func decode[T any](path string, raw json.RawMessage) (v T, err error) {
	if len(raw) == 0 {
		return v, nil
	}
	err = json.Unmarshal(raw, &v)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		path = strings.TrimSuffix(path+"."+e.Field, ".")
		return v, &bourse.Error{Code: bourse.CodeInvalid, Message: "invalid " + path + ": a JSON " + e.Value + " does not fit", Err: err}
	}
	if err != nil {
		return v, invalid("invalid %s: %w", path, err)
	}
	return v, nil
}
