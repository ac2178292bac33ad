package workload

import (
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
)

// Nothing acts on these but by its own reading.
type (
	service struct {
		Protocol                 string         `json:"protocol"`
		InternalPort             int            `json:"internal_port"`
		Autostop                 *autostopShape `json:"autostop"`
		Autostart                *bool          `json:"autostart"`
		MinMachinesRunning       *int           `json:"min_machines_running"`
		Ports                    []port         `json:"ports"`
		Checks                   []check        `json:"checks"`
		Concurrency              *limits        `json:"concurrency"`
		ForceInstanceKey         *string        `json:"force_instance_key"`
		ForceInstanceDescription *string        `json:"force_instance_description"`
	}
	limits struct {
		Type      string `json:"type"`
		HardLimit int    `json:"hard_limit"`
		SoftLimit int    `json:"soft_limit"`
	}
	port struct {
		Port              *int         `json:"port"`
		StartPort         *int         `json:"start_port"`
		EndPort           *int         `json:"end_port"`
		Handlers          []string     `json:"handlers"`
		ForceHTTPS        bool         `json:"force_https"`
		TLSOptions        *tlsOptions  `json:"tls_options"`
		HTTPOptions       *httpOptions `json:"http_options"`
		ProxyProtoOptions *proxyOption `json:"proxy_proto_options"`
	}
	tlsOptions struct {
		ALPN              []string `json:"alpn"`
		Versions          []string `json:"versions"`
		DefaultSelfSigned *bool    `json:"default_self_signed"`
	}
	httpOptions struct {
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
	proxyOption struct {
		Version string `json:"version"`
	}
	check struct {
		Port          *int      `json:"port"`
		Type          *string   `json:"type"`
		Kind          *string   `json:"kind"`
		Interval      *duration `json:"interval"`
		Timeout       *duration `json:"timeout"`
		GracePeriod   *duration `json:"grace_period"`
		Method        *string   `json:"method"`
		Path          *string   `json:"path"`
		Protocol      *string   `json:"protocol"`
		TLSSkipVerify *bool     `json:"tls_skip_verify"`
		TLSServerName *string   `json:"tls_server_name"`
		Headers       []header  `json:"headers"`
	}
	header struct {
		Name   string   `json:"name"`
		Values []string `json:"values"`
	}
	program struct {
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
	process struct {
		program
		IgnoreAppSecrets bool `json:"ignore_app_secrets"`
	}
	container struct {
		program
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
			Timeout *duration `json:"timeout"`
			Signal  *string   `json:"signal"`
		} `json:"stop"`
		DependsOn []struct {
			Name      string `json:"name"`
			Condition string `json:"condition"`
		} `json:"depends_on"`
		Healthchecks []healthcheck `json:"healthchecks"`
		Mounts       []struct {
			Name string `json:"name"`
			Path string `json:"path"`
		} `json:"mounts"`
	}
	healthcheck struct {
		Name             string `json:"name"`
		Interval         int64  `json:"interval"`
		GracePeriod      int64  `json:"grace_period"`
		SuccessThreshold int32  `json:"success_threshold"`
		FailureThreshold int32  `json:"failure_threshold"`
		Timeout          int64  `json:"timeout"`
		Kind             string `json:"kind"`
		Unhealthy        string `json:"unhealthy"`
		HTTP             *struct {
			Port          int32    `json:"port"`
			Method        string   `json:"method"`
			Path          string   `json:"path"`
			Headers       []header `json:"headers"`
			Scheme        string   `json:"scheme"`
			TLSSkipVerify *bool    `json:"tls_skip_verify"`
			TLSServerName string   `json:"tls_server_name"`
		} `json:"http"`
		TCP *struct {
			Port int32 `json:"port"`
		} `json:"tcp"`
		Exec *struct {
			Command []string `json:"command"`
		} `json:"exec"`
	}
	volume struct {
		Name    string `json:"name"`
		TempDir *struct {
			StorageType string `json:"storage_type"`
			SizeMB      uint64 `json:"size_mb"`
		} `json:"temp_dir"`
		Image *string `json:"image"`
	}
	metrics struct {
		Port  int    `json:"port"`
		Path  string `json:"path"`
		HTTPS bool   `json:"https"`
	}
	dns struct {
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
	rest struct {
		Guest *struct {
			MaxMemoryMB      int      `json:"max_memory_mb"`
			HostDedicationID string   `json:"host_dedication_id"`
			PersistRootfs    any      `json:"persist_rootfs"` // refused unless it asks for nothing
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
	static struct {
		GuestPath     string `json:"guest_path"`
		URLPrefix     string `json:"url_prefix"`
		TigrisBucket  string `json:"tigris_bucket"`
		IndexDocument string `json:"index_document"`
	}
)

// duration is a duration as clients read it: a Go duration string or a
// number of nanoseconds.
type duration struct{}

// UnmarshalJSON checks the form.
func (*duration) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		if _, err := time.ParseDuration(s); err != nil && string(b) != "null" {
			return &json.UnmarshalTypeError{Value: "string " + bourse.Quoted(s)}
		}
		return nil
	}
	var n int64
	return json.Unmarshal(b, &n)
}

// autostopShape is false, true, "off", "stop" or "suspend".
type autostopShape struct{}

// UnmarshalJSON checks the form.
func (*autostopShape) UnmarshalJSON(b []byte) error {
	switch s := string(b); s {
	case "null", "true", "false", `"off"`, `"stop"`, `"suspend"`:
		return nil
	}
	return &json.UnmarshalTypeError{Value: "value " + bourse.Quoted(string(b))}
}
