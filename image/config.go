package image

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
)

// Config is where images are kept and how they are fetched.
type Config struct {
	// Client connects to containerd; called once, when it is first needed.
	// The caller closes what it returns. Nil: the store connects to Address.
	Client  func() (*containerd.Client, error)
	Address string // path of containerd's socket, when Client is nil

	Namespace   string // of containerd; default "bourse"
	Snapshotter string // that unpacks images; default "overlayfs"
	Budget      int64  // bytes of disk for images; 0: no limit

	Registries   map[string]Registry // by host, as in an image's name: "registry.example.com:5000"
	Private      bool                // registries may be at private, loopback and link-local addresses; those in Registries always may
	Only         []string            // the registries that may be asked; nil: any
	DockerConfig string              // optional path of a docker config.json with the credentials that all organisations share
	OrgConfigs   map[string]string   // by organisation, paths of such files with its own, which no other's pulls use

	ResolveWithin time.Duration // for a registry to resolve a tag; default 3 s
	Stall         time.Duration // a request that receives nothing for so long is aborted; default 30 s
	Linger        time.Duration // a pull goes on so long after its last waiter has left; default 10 min
	Keep          time.Duration // of what a failed pull has fetched, for a retry; default 1 h
	Recheck       time.Duration // a registry that has shown an image is asked again after so long, when a digest names it; default 5 min

	Log *slog.Logger // default: none
}

// Registry is how one registry is reached. The zero value is HTTPS with the
// system's authorities and no credentials; a registry on loopback that has no CA
// here is reached by plain HTTP, as docker does.
type Registry struct {
	PlainHTTP bool
	CA        string // optional PEM file with the authorities that sign its certificate, instead of the system's
	Username  string // optional; empty with a Password: the password is a token
	Password  string
}

// Names in containerd.
const (
	DefaultNamespace   = "bourse"
	DefaultSnapshotter = "overlayfs"
)

func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.Snapshotter = cmp.Or(c.Snapshotter, DefaultSnapshotter)
	c.ResolveWithin = cmp.Or(c.ResolveWithin, 3*time.Second)
	c.Stall = cmp.Or(c.Stall, 30*time.Second)
	c.Linger = cmp.Or(c.Linger, 10*time.Minute)
	c.Keep = cmp.Or(c.Keep, time.Hour)
	c.Recheck = cmp.Or(c.Recheck, 5*time.Minute)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports everything that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	if c.Client == nil && c.Address == "" {
		errs = append(errs, errors.New("image: no containerd: neither Client nor Address"))
	}
	if c.Budget < 0 {
		errs = append(errs, fmt.Errorf("image: budget of %d bytes", c.Budget))
	}
	for name, d := range map[string]time.Duration{
		"ResolveWithin": c.ResolveWithin, "Stall": c.Stall, "Linger": c.Linger, "Keep": c.Keep, "Recheck": c.Recheck,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("image: %s is %s", name, d))
		}
	}
	for host, r := range c.Registries {
		if r.PlainHTTP && r.CA != "" {
			errs = append(errs, fmt.Errorf("image: registry %s has an authority, but plain HTTP", host))
		}
	}
	return errors.Join(errs...)
}
