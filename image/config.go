package image

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
)

// Config configures a Store.
type Config struct {
	// Client returns the connection to containerd. The store calls Client once, when it first needs the connection, and
	// does not close the connection. If Client is nil, the store connects to Address.
	Client  func() (*containerd.Client, error)
	Address string // path of containerd's socket; used only if Client is nil

	Namespace   string // namespace in containerd; default "bourse"
	Snapshotter string // containerd snapshotter; default "overlayfs"
	Budget      int64  // maximum disk space of images in bytes; 0: no limit

	Registries        map[string]Registry // keys are registry hosts as in image names, for example "registry.example.com:5000"
	Private           bool                // allow registries at private, loopback and link-local addresses; those in Registries are always allowed
	AllowedRegistries []string            // the only allowed registries; nil: all are allowed
	DockerConfig      string              // optional path of a Docker config.json with credentials for all organizations
	OrgConfigs        map[string]string   // paths of Docker config.json files by organization; each is used only for that organization's pulls

	ResolveTimeout time.Duration // time limit for resolving a tag; default 3 s
	Stall          time.Duration // a request is aborted if no data arrives for this long; default 30 s
	Linger         time.Duration // how long a pull continues without waiters; default 10 min
	Keep           time.Duration // how long the data of a failed pull is kept for a retry; default 1 h
	Recheck        time.Duration // how long a registry's answer about a digest remains valid; default 5 min

	Log *slog.Logger // default: discards all records
}

// Registry configures access to one registry. The zero value means HTTPS with the system's certificate authorities and
// no credentials, except that registries on loopback use plain HTTP, as in Docker.
type Registry struct {
	PlainHTTP bool
	CA        string // optional PEM file with certificate authorities that replace the system's
	Username  string // optional; if empty and Password is set, Password is a token
	Password  string
}

// Default names in containerd.
const (
	DefaultNamespace   = "bourse"
	DefaultSnapshotter = "overlayfs"
)

func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.Snapshotter = cmp.Or(c.Snapshotter, DefaultSnapshotter)
	c.ResolveTimeout = cmp.Or(c.ResolveTimeout, 3*time.Second)
	c.Stall = cmp.Or(c.Stall, 30*time.Second)
	c.Linger = cmp.Or(c.Linger, 10*time.Minute)
	c.Keep = cmp.Or(c.Keep, time.Hour)
	c.Recheck = cmp.Or(c.Recheck, 5*time.Minute)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns an error that lists everything that is wrong with the configuration, or nil.
func (c Config) Validate() error {
	var errs []error
	if c.Client == nil && c.Address == "" {
		errs = append(errs, errors.New("image: neither Client nor Address is set"))
	}
	if c.Budget < 0 {
		errs = append(errs, fmt.Errorf("image: invalid budget of %d bytes", c.Budget))
	}
	for name, d := range map[string]time.Duration{
		"ResolveWithin": c.ResolveTimeout, "Stall": c.Stall, "Linger": c.Linger, "Keep": c.Keep, "Recheck": c.Recheck,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("image: invalid %s %s", name, d))
		}
	}
	for host, r := range c.Registries {
		if r.PlainHTTP && r.CA != "" {
			errs = append(errs, fmt.Errorf("image: registry %s has both PlainHTTP and a CA", host))
		}
	}
	return errors.Join(errs...)
}
