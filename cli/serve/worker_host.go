package serve

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// HostConfig is what of its host a worker uses beside processes: containers,
// images, networks, volumes and devices. The zero value is what the host has.
type HostConfig struct {
	Containerd        string // address of its socket; "auto": the usual one if it is there; "none": no containers
	Namespace         string // of containerd's
	Runtime           string // of containers, by containerd's name
	Network           NetworkMode
	NoVolumes         bool
	Images            bourse.MiB          // most that images take of the disk; 0: a fifth of it
	Registries        map[string]Registry // by host
	Private           bool                // registries may be at addresses of the worker's own network
	AllowedRegistries []string            // registries that may be asked; nil: any
	DockerAuth        string              // docker's config.json with credentials for all organizations; "": none
	OrgAuth           map[string]string   // by organization, such files with its own
	Devices           map[string][]string // CDI names by kind of gpu; what is not stated is looked for
	Shared            bool                // shared cpus have the Machines API's quota, not all that is idle
}

// NetworkMode is which machines have a network of their own.
type NetworkMode string

// The modes.
const (
	NetworkAuto       NetworkMode = "auto"       // containers, where the host lets us; the default
	NetworkHost       NetworkMode = "host"       // none: all use the host's
	NetworkContainers NetworkMode = "containers" // those of images
	NetworkAll        NetworkMode = "all"        // all machines
)

// Registry is how a registry of images is reached.
type Registry struct {
	PlainHTTP bool
	CA        string // PEM file of the CA that its certificate is of; "": the host's
}

// The values of --containerd that are no address.
const (
	ContainerdAuto = "auto"
	ContainerdNone = "none"
)

// usualContainerd is where containerd listens by default.
const usualContainerd = "/run/containerd/containerd.sock"

// ContainerdAddress returns the socket that a value of --containerd means, "" for none.
func ContainerdAddress(stated string) string {
	switch stated {
	case ContainerdNone:
		return ""
	case ContainerdAuto:
		info, err := os.Stat(usualContainerd)
		if err != nil || info.Mode()&os.ModeSocket == 0 || os.Geteuid() != 0 {
			return ""
		}
		return usualContainerd
	}
	return stated
}

// bind binds the flags to the config.
func (c *HostConfig) bind(b binder) {
	reads(b, &c.Containerd, "containerd", ContainerdAuto, "`address` of containerd's socket, for machines of images; auto: the usual one if it is there; none: no such machines", parseContainerd)
	b.StringVar(&c.Namespace, "containerd-namespace", "bourse", "containerd `namespace`, this worker's alone")
	b.StringVar(&c.Runtime, "runtime", "io.containerd.runc.v2", "containerd's `name` of the runtime that runs containers")
	reads(b, &c.Network, "network", string(NetworkAuto), "which machines have a network of their own, a `mode`: host (none), containers or all; auto: containers, with root", parseNetwork)
	reads(b, &c.Images, "images", "", "most disk that images take, a `size` such as 50GiB (default: a fifth of --disk)", cli.ParseMiB)
	readsEach(b, "registry-http", "`HOST[:PORT]` of a registry that is asked without TLS (loopback always is); may be repeated", c.addPlainHTTP)
	readsEach(b, "registry-ca", "`HOST=FILE`: the CA of a registry's certificate; may be repeated", c.addCA)
	b.BoolVar(&c.Private, "registry-private", false, "registries may be at private, loopback and link-local addresses; one that --registry-http or --registry-ca names always may")
	b.StringArrayVar(&c.AllowedRegistries, "registry", nil, "`HOST[:PORT]` of a registry that images may be of; may be repeated (default: any)")
	readsEach(b, "registry-auth", "`[ORG=]FILE` with registries' credentials, docker's config.json: those of one organization, or else of all; may be repeated", c.addAuth)
	b.BoolVar(&c.NoVolumes, "no-volumes", false, "offer no volumes")
	readsEach(b, "device", "`KIND=NAME`: a gpu of this kind is given to machines by this CDI name; may be repeated (default: NVIDIA's are looked for)", c.addDevice)
	b.BoolVar(&c.Shared, "shared-quota", false, "hold shared cpus to 5 ms of 80 with bursts, as the Machines API's own platform does, even when cpus are idle")
}

func parseContainerd(s string) (string, error) {
	if s != ContainerdAuto && s != ContainerdNone && !filepath.IsAbs(strings.TrimPrefix(s, "unix://")) {
		return s, bourse.Errorf(bourse.CodeInvalid, "%s: use the absolute path of a socket, auto or none", bourse.Quoted(s))
	}
	return s, nil
}

func parseNetwork(s string) (NetworkMode, error) {
	switch m := NetworkMode(s); m {
	case NetworkAuto, NetworkHost, NetworkContainers, NetworkAll:
		return m, nil
	}
	return "", bourse.Errorf(bourse.CodeInvalid, "%s: use host, containers, all or auto", bourse.Quoted(s))
}

func (c *HostConfig) addPlainHTTP(host string) error {
	c.addRegistry(host, Registry{PlainHTTP: true, CA: c.Registries[host].CA})
	return nil
}

func (c *HostConfig) addCA(s string) error {
	host, file, err := cli.ParsePair(s)
	c.addRegistry(host, Registry{PlainHTTP: c.Registries[host].PlainHTTP, CA: file})
	return err
}

func (c *HostConfig) addRegistry(host string, r Registry) {
	if c.Registries == nil {
		c.Registries = map[string]Registry{}
	}
	c.Registries[host] = r
}

// addDevice notes a device: KIND=NAME.
func (c *HostConfig) addDevice(s string) error {
	kind, name, err := cli.ParsePair(s)
	if err == nil && !strings.Contains(name, "/") {
		err = bourse.Errorf(bourse.CodeInvalid, "%s: use KIND=VENDOR.COM/CLASS=NAME", bourse.Quoted(s))
	}
	if c.Devices == nil {
		c.Devices = map[string][]string{}
	}
	c.Devices[kind] = append(c.Devices[kind], name)
	return err
}

// addAuth notes a file of credentials: FILE, or ORG=FILE.
func (c *HostConfig) addAuth(s string) error {
	org, file, ok := strings.Cut(s, "=")
	switch {
	case !ok || strings.Contains(org, "/"): // a path with a "=" of its own
		if c.DockerAuth != "" {
			return bourse.Errorf(bourse.CodeInvalid, "%s: a second file for all organizations", bourse.Quoted(s))
		}
		c.DockerAuth = s
		return nil
	case file == "" || bourse.AppName(org).Validate() != nil:
		return bourse.Errorf(bourse.CodeInvalid, "%s: use FILE or ORG=FILE", bourse.Quoted(s))
	case c.OrgAuth[org] != "":
		return bourse.Errorf(bourse.CodeInvalid, "%s: a second file for organization %s", bourse.Quoted(s), org)
	case c.OrgAuth == nil:
		c.OrgAuth = map[string]string{}
	}
	c.OrgAuth[org] = file
	return nil
}
