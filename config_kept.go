package bourse

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// The shapes of what a Config keeps unread, as clients of the Machines API
// decode them: one value of a wrong type would make every client fail on the
// app's whole list. Nothing acts on them but by its own reading.
type (
	keptService struct {
		Protocol                 string        `json:"protocol"`
		InternalPort             int           `json:"internal_port"`
		Autostop                 *keptAutostop `json:"autostop"`
		Autostart                *bool         `json:"autostart"`
		MinMachinesRunning       *int          `json:"min_machines_running"`
		Ports                    []keptPort    `json:"ports"`
		Checks                   []keptCheck   `json:"checks"`
		Concurrency              *keptLimits   `json:"concurrency"`
		ForceInstanceKey         *string       `json:"force_instance_key"`
		ForceInstanceDescription *string       `json:"force_instance_description"`
	}
	keptLimits struct {
		Type      string `json:"type"`
		HardLimit int    `json:"hard_limit"`
		SoftLimit int    `json:"soft_limit"`
	}
	keptPort struct {
		Port              *int             `json:"port"`
		StartPort         *int             `json:"start_port"`
		EndPort           *int             `json:"end_port"`
		Handlers          []string         `json:"handlers"`
		ForceHTTPS        bool             `json:"force_https"`
		TLSOptions        *keptTLS         `json:"tls_options"`
		HTTPOptions       *keptHTTP        `json:"http_options"`
		ProxyProtoOptions *keptProxyOption `json:"proxy_proto_options"`
	}
	keptTLS struct {
		ALPN              []string `json:"alpn"`
		Versions          []string `json:"versions"`
		DefaultSelfSigned *bool    `json:"default_self_signed"`
	}
	keptHTTP struct {
		Compress *bool `json:"compress"`
		Response *struct {
			Headers  map[string]any `json:"headers"`
			Pristine *bool          `json:"pristine"`
		} `json:"response"`
		H2Backend          *bool   `json:"h2_backend"`
		IdleTimeout        *uint32 `json:"idle_timeout"`
		HeadersReadTimeout *uint32 `json:"headers_read_timeout"`
		ReplayCache        []struct {
			PathPrefix  string `json:"path_prefix"`
			TTLSeconds  int    `json:"ttl_seconds"`
			Type        string `json:"type"`
			Name        string `json:"name"`
			AllowBypass bool   `json:"allow_bypass"`
		} `json:"replay_cache"`
	}
	keptProxyOption struct {
		Version string `json:"version"`
	}
	keptCheck struct {
		Port          *int          `json:"port"`
		Type          *string       `json:"type"`
		Kind          *string       `json:"kind"`
		Interval      *keptDuration `json:"interval"`
		Timeout       *keptDuration `json:"timeout"`
		GracePeriod   *keptDuration `json:"grace_period"`
		Method        *string       `json:"method"`
		Path          *string       `json:"path"`
		Protocol      *string       `json:"protocol"`
		TLSSkipVerify *bool         `json:"tls_skip_verify"`
		TLSServerName *string       `json:"tls_server_name"`
		Headers       []keptHeader  `json:"headers"`
	}
	keptHeader struct {
		Name   string   `json:"name"`
		Values []string `json:"values"`
	}
	keptProgram struct {
		Exec       []string          `json:"exec"`
		Entrypoint []string          `json:"entrypoint"`
		Cmd        []string          `json:"cmd"`
		User       string            `json:"user"`
		Env        map[string]string `json:"env"`
		Secrets    []struct {
			EnvVar string `json:"env_var"`
			Name   string `json:"name"`
		} `json:"secrets"`
		EnvFrom []struct {
			EnvVar   string `json:"env_var"`
			FieldRef string `json:"field_ref"`
		} `json:"env_from"`
	}
	keptProcess struct {
		keptProgram
		IgnoreAppSecrets bool `json:"ignore_app_secrets"`
	}
	keptContainer struct {
		keptProgram
		Name  string `json:"name"`
		Image string `json:"image"`
		Files []*struct {
			GuestPath   string  `json:"guest_path"`
			RawValue    *string `json:"raw_value"`
			SecretName  *string `json:"secret_name"`
			ImageConfig *string `json:"image_config"`
			Mode        uint32  `json:"mode"`
		} `json:"files"`
		Restart *struct {
			Policy      string  `json:"policy"`
			MaxRetries  int     `json:"max_retries"`
			GPUBidPrice float32 `json:"gpu_bid_price"`
		} `json:"restart"`
		Stop *struct {
			Timeout *keptDuration `json:"timeout"`
			Signal  *string       `json:"signal"`
		} `json:"stop"`
		DependsOn []struct {
			Name      string `json:"name"`
			Condition string `json:"condition"`
		} `json:"depends_on"`
		Healthchecks []keptHealthcheck `json:"healthchecks"`
		Mounts       []struct {
			Name string `json:"name"`
			Path string `json:"path"`
		} `json:"mounts"`
	}
	keptHealthcheck struct {
		Name             string `json:"name"`
		Interval         int64  `json:"interval"`
		GracePeriod      int64  `json:"grace_period"`
		SuccessThreshold int32  `json:"success_threshold"`
		FailureThreshold int32  `json:"failure_threshold"`
		Timeout          int64  `json:"timeout"`
		Kind             string `json:"kind"`
		Unhealthy        string `json:"unhealthy"`
		HTTP             *struct {
			Port          int32        `json:"port"`
			Method        string       `json:"method"`
			Path          string       `json:"path"`
			Headers       []keptHeader `json:"headers"`
			Scheme        string       `json:"scheme"`
			TLSSkipVerify *bool        `json:"tls_skip_verify"`
			TLSServerName string       `json:"tls_server_name"`
		} `json:"http"`
		TCP *struct {
			Port int32 `json:"port"`
		} `json:"tcp"`
		Exec *struct {
			Command []string `json:"command"`
		} `json:"exec"`
	}
	keptVolume struct {
		Name    string `json:"name"`
		TempDir *struct {
			StorageType string `json:"storage_type"`
			SizeMB      uint64 `json:"size_mb"`
		} `json:"temp_dir"`
		Image *string `json:"image"`
	}
	keptMetrics struct {
		Port  int    `json:"port"`
		Path  string `json:"path"`
		HTTPS bool   `json:"https"`
	}
	keptDNS struct {
		SkipRegistration bool     `json:"skip_registration"`
		Nameservers      []string `json:"nameservers"`
		Searches         []string `json:"searches"`
		Options          []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"options"`
		DNSForwardRules []struct {
			Basename string `json:"basename"`
			Addr     string `json:"addr"`
		} `json:"dns_forward_rules"`
		Hostname     string `json:"hostname"`
		HostnameFQDN string `json:"hostname_fqdn"`
	}
	keptStatic struct {
		GuestPath     string `json:"guest_path"`
		URLPrefix     string `json:"url_prefix"`
		TigrisBucket  string `json:"tigris_bucket"`
		IndexDocument string `json:"index_document"`
	}
)

// keptDuration is a duration as clients read it: a Go duration string or a
// number of nanoseconds.
type keptDuration struct{}

// UnmarshalJSON checks the form.
func (*keptDuration) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		if _, err := time.ParseDuration(s); err != nil && string(b) != "null" {
			return &json.UnmarshalTypeError{Value: "string " + Quoted(s)}
		}
		return nil
	}
	var n int64
	return json.Unmarshal(b, &n)
}

// keptAutostop is false, true, "off", "stop" or "suspend".
type keptAutostop struct{}

// UnmarshalJSON checks the form.
func (*keptAutostop) UnmarshalJSON(b []byte) error {
	switch s := string(b); s {
	case "null", "true", "false", `"off"`, `"stop"`, `"suspend"`:
		return nil
	}
	return &json.UnmarshalTypeError{Value: "value " + Quoted(string(b))}
}

// keptField is a field of a Kept, and its shape.
type keptField struct {
	name  string
	value *json.RawMessage
	check func([]byte) error
}

func shaped[T any](b []byte) error {
	var v T
	return json.Unmarshal(b, &v)
}

// shapedChecks is shaped for a map, whose keys the decoder's errors leave out.
func shapedChecks(b []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := shaped[keptCheck](all[name]); err != nil {
			return keptError(name, err)
		}
	}
	return nil
}

func (k *Kept) fields() []keptField {
	return []keptField{
		{"services", &k.Services, shaped[[]keptService]},
		{"checks", &k.Checks, shapedChecks},
		{"processes", &k.Processes, shaped[[]keptProcess]},
		{"containers", &k.Containers, shaped[[]*keptContainer]},
		{"volumes", &k.Volumes, shaped[[]*keptVolume]},
		{"metrics", &k.Metrics, shaped[*keptMetrics]},
		{"schedule", &k.Schedule, shaped[string]},
		{"standbys", &k.Standbys, shaped[[]string]},
		{"dns", &k.DNS, shaped[*keptDNS]},
		{"statics", &k.Statics, shaped[[]*keptStatic]},
	}
}

// validate reports CodeInvalid, with the path of the value, when a field has
// not the shape that clients of the Machines API know.
func (k *Kept) validate() error {
	for _, f := range k.fields() {
		if len(*f.value) == 0 {
			continue
		}
		if err := f.check(*f.value); err != nil {
			return keptError("config."+f.name, err).invalid()
		}
	}
	return nil
}

// misshapen is a value that has not its shape.
type misshapen struct {
	path string
	err  error
}

func (m misshapen) Error() string { return m.path + ": " + m.err.Error() }

func (m misshapen) invalid() error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](m.err); ok {
		return &Error{Code: CodeInvalid, Message: "invalid " + m.path + ": a JSON " + e.Value + " does not fit", Err: m.err}
	}
	return Errorf(CodeInvalid, "invalid %s: %w", m.path, m.err)
}

// keptError says where below path the value is that err is about.
func keptError(path string, err error) misshapen {
	switch e := err.(type) { //nolint:errorlint // both were just made, by us and by the decoder
	case misshapen:
		return misshapen{path + "." + e.path, e.err}
	case *json.UnmarshalTypeError:
		if field := strings.ReplaceAll(e.Field, "keptProgram.", ""); field != "" { // embedded
			path += "." + field
		}
	}
	return misshapen{path, err}
}

// Decodable returns k without the fields that clients could not decode: a
// release before this one stored whatever came.
func (k Kept) Decodable() Kept {
	for _, f := range k.fields() {
		if len(*f.value) > 0 && f.check(*f.value) != nil {
			*f.value = nil
		}
	}
	return k
}
