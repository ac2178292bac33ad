package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
)

// HostConfig says what of its host a worker uses beside processes: containers,
// images, networks, volumes and devices. The zero value is what the host has.
type HostConfig struct {
	Containerd string // address of its socket; "auto": the usual one if it is there; "none": no containers
	Namespace  string // of containerd's
	Runtime    string // of containers, by containerd's name
	Network    NetworkMode
	Volumes    bool
	Images     bourse.MiB          // most that images take of the disk; 0: a fifth of it
	Registries map[string]Registry // by host
	Private    bool                // registries may be at addresses of the worker's own network
	Only       []string            // registries that may be asked; nil: any
	DockerAuth string              // docker's config.json with credentials for all organisations; "": none
	OrgAuth    map[string]string   // by organisation, such files with its own
	Devices    map[string][]string // CDI names by kind of gpu; what is not stated is looked for
	Shared     bool                // shared cpus have the Machines API's quota, not all that is idle
}

// NetworkMode says which machines have a network of their own.
type NetworkMode string

// The modes.
const (
	NetworkAuto       NetworkMode = "auto"       // containers, where the host lets us; the default
	NetworkHost       NetworkMode = "host"       // none: all use the host's
	NetworkContainers NetworkMode = "containers" // those of images
	NetworkAll        NetworkMode = "all"        // all machines
)

// Registry says how a registry of images is reached.
type Registry struct {
	PlainHTTP bool
	CA        string // PEM file of the CA that its certificate is of; "": the host's
}

// The values of --containerd that are no address.
const (
	ContainerdAuto = "auto"
	ContainerdNone = "none"
)

// hostFlags are the flags of a HostConfig as they are typed.
type hostFlags struct {
	containerd, namespace, runtime  string
	network, images                 string
	noVolumes, shared, private      bool
	plain, cas, devices, only, auth []string
}

func (f *hostFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.containerd, "containerd", ContainerdAuto, "`address` of containerd's socket, for machines of images; auto: the usual one if it is there; none: no such machines")
	flags.StringVar(&f.namespace, "containerd-namespace", "bourse", "containerd `namespace`, this worker's alone")
	flags.StringVar(&f.runtime, "runtime", "io.containerd.runc.v2", "containerd's `name` of the runtime that runs containers")
	flags.StringVar(&f.network, "network", string(NetworkAuto), "which machines have a network of their own, a `mode`: host (none), containers or all; auto: containers, with root")
	flags.StringVar(&f.images, "images", "", "most disk that images take, a `size` such as 50GiB (default: a fifth of --disk)")
	flags.StringArrayVar(&f.plain, "registry-http", nil, "`HOST[:PORT]` of a registry that is asked without TLS (loopback always is); may be repeated")
	flags.StringArrayVar(&f.cas, "registry-ca", nil, "`HOST=FILE`: the CA of a registry's certificate; may be repeated")
	flags.BoolVar(&f.private, "registry-private", false, "registries may be at private, loopback and link-local addresses; one that --registry-http or --registry-ca names always may")
	flags.StringArrayVar(&f.only, "registry", nil, "`HOST[:PORT]` of a registry that images may be of; may be repeated (default: any)")
	flags.StringArrayVar(&f.auth, "registry-auth", nil, "`[ORG=]FILE` with registries' credentials, docker's config.json: those of one organisation, or else of all; may be repeated")
	flags.BoolVar(&f.noVolumes, "no-volumes", false, "offer no volumes")
	flags.StringArrayVar(&f.devices, "device", nil, "`KIND=NAME`: a gpu of this kind is given to machines by this CDI name; may be repeated (default: NVIDIA's are looked for)")
	flags.BoolVar(&f.shared, "shared-quota", false, "hold shared cpus to 5 ms of 80 with bursts, as the Machines API's own platform does, even when cpus are idle")
}

// read turns the flags into a config and gives to keep what cannot be read.
func (f *hostFlags) read(keep func(flag string, err error)) HostConfig {
	c := HostConfig{
		Containerd: f.containerd, Namespace: f.namespace, Runtime: f.runtime, Network: NetworkMode(f.network),
		Volumes: !f.noVolumes, Private: f.private, Only: f.only, Shared: f.shared, Registries: map[string]Registry{},
	}
	if c.Containerd != ContainerdAuto && c.Containerd != ContainerdNone && !filepath.IsAbs(strings.TrimPrefix(c.Containerd, "unix://")) {
		keep("--containerd", bourse.Errorf(bourse.CodeInvalid, "%s: use the absolute path of a socket, auto or none", bourse.Quoted(c.Containerd)))
	}
	switch c.Network {
	case NetworkAuto, NetworkHost, NetworkContainers, NetworkAll:
	default:
		keep("--network", bourse.Errorf(bourse.CodeInvalid, "%s: use host, containers, all or auto", bourse.Quoted(f.network)))
	}
	var err error
	if f.images != "" {
		c.Images, err = parseMiB(f.images)
		keep("--images", err)
	}
	for _, host := range f.plain {
		c.Registries[host] = Registry{PlainHTTP: true}
	}
	for _, s := range f.cas {
		host, file, err := parsePair(s)
		keep("--registry-ca", err)
		r := c.Registries[host]
		r.CA = file
		c.Registries[host] = r
	}
	for _, s := range f.auth {
		keep("--registry-auth", c.addAuth(s))
	}
	for _, s := range f.devices {
		kind, name, err := parsePair(s)
		if err == nil && !strings.Contains(name, "/") {
			err = bourse.Errorf(bourse.CodeInvalid, "%s: use KIND=VENDOR.COM/CLASS=NAME", bourse.Quoted(s))
		}
		keep("--device", err)
		if c.Devices == nil {
			c.Devices = map[string][]string{}
		}
		c.Devices[kind] = append(c.Devices[kind], name)
	}
	return c
}

// addAuth notes a file of credentials: FILE, or ORG=FILE.
func (c *HostConfig) addAuth(s string) error {
	org, file, ok := strings.Cut(s, "=")
	switch {
	case !ok || strings.Contains(org, "/"): // a path with a "=" of its own
		if c.DockerAuth != "" {
			return bourse.Errorf(bourse.CodeInvalid, "%s: a second file for all organisations", bourse.Quoted(s))
		}
		c.DockerAuth = s
		return nil
	case file == "" || bourse.AppName(org).Validate() != nil:
		return bourse.Errorf(bourse.CodeInvalid, "%s: use FILE or ORG=FILE", bourse.Quoted(s))
	case c.OrgAuth[org] != "":
		return bourse.Errorf(bourse.CodeInvalid, "%s: a second file for organisation %s", bourse.Quoted(s), org)
	case c.OrgAuth == nil:
		c.OrgAuth = map[string]string{}
	}
	c.OrgAuth[org] = file
	return nil
}
