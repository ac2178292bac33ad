package serve

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// HostConfig configures which features of its host a worker uses: containers, images,
// networks, volumes and devices. The flags' defaults enable everything that the host
// supports.
type HostConfig struct {
	Containerd        string // path of containerd's socket; "auto" means the default socket if it exists, "none" disables containers
	Namespace         string // containerd namespace, which only this worker may use
	Runtime           string // vm, or containerd's name of the container runtime
	Kernel            string // kernel of virtual machines; "" means the host's newest
	Emulation         bool   // whether virtual machines may run without KVM even if their orders don't allow it
	Network           NetworkMode
	Mesh              netip.AddrPort // UDP address of the mesh, which connects private networks with those of other workers; the zero value disables the mesh
	NoVolumes         bool
	Images            bourse.MiB          // maximum disk space for images; 0 means a fifth of the disk
	Registries        map[string]Registry // access to image registries, by host
	Private           bool                // whether images may come from registries at private, loopback and link-local addresses
	AllowedRegistries []string            // hosts of the registries that images may come from; nil means any
	DockerAuth        string              // Docker config.json with credentials for all organizations; "" means none
	OrgAuth           map[string]string   // like DockerAuth, but for single organizations
	Devices           map[string][]string // CDI device names, by kind of GPU; devices of kinds that are not listed are detected
	Shared            bool                // whether shared CPUs are limited to the Machines API's quota even if CPUs are idle
}

// NetworkMode determines which machines have their own network.
type NetworkMode string

// The network modes.
const (
	NetworkAuto       NetworkMode = "auto"       // machines that run in containers, if the host permits it; the default
	NetworkHost       NetworkMode = "host"       // no machine: all of them use the host's network
	NetworkContainers NetworkMode = "containers" // machines that run in containers
	NetworkAll        NetworkMode = "all"        // all machines
)

// Registry configures access to an image registry.
type Registry struct {
	PlainHTTP bool
	CA        string // PEM file with the CA that issued the registry's certificate; "" means the host's CAs
}

// The values of --containerd that are not paths.
const (
	ContainerdAuto = "auto"
	ContainerdNone = "none"
)

// defaultContainerd is containerd's default socket.
const defaultContainerd = "/run/containerd/containerd.sock"

// ContainerdAddress returns the socket that a value of --containerd selects, or "" if
// it selects none.
func ContainerdAddress(stated string) string {
	switch stated {
	case ContainerdNone:
		return ""
	case ContainerdAuto:
		info, err := os.Stat(defaultContainerd)
		if err != nil || info.Mode()&os.ModeSocket == 0 || os.Geteuid() != 0 {
			return ""
		}
		return defaultContainerd
	}
	return stated
}

// bind binds the flags to the config.
func (c *HostConfig) bind(b binder) {
	bindParsed(b, &c.Containerd, "containerd", ContainerdAuto, "`path` of containerd's socket, which is used to run images; auto means the default socket if it exists, none disables images", parseContainerd)
	b.StringVar(&c.Namespace, "containerd-namespace", "bourse", "containerd `namespace`, which only this worker may use")
	b.StringVar(&c.Runtime, "runtime", "io.containerd.runc.v2", "`name` of the default runtime for images: vm for virtual machines, or containerd's name")
	b.StringVar(&c.Kernel, "vm-kernel", "", "`file` with the kernel of virtual machines; its modules must be in /lib/modules, or in a directory \"modules\" next to it (default: the newest /boot/vmlinuz-*)")
	b.BoolVar(&c.Emulation, "vm-emulation", false, "without KVM, emulate virtual machines even if their orders don't allow it")
	bindParsed(b, &c.Network, "network", string(NetworkAuto), "`mode` that selects the machines with their own network: host (none), containers, all, or auto (containers, if running as root)", parseNetwork)
	bindParsed(b, &c.Mesh, "mesh", "", "UDP `[IP:]PORT` through which machines reach machines of their network on other workers; the IP address is the one that other workers use (default: this host's --address)", parseMesh)
	bindParsed(b, &c.Images, "images", "", "maximum `size` of all images on disk, such as 50GiB (default: a fifth of --disk)", cli.ParseMiB)
	bindEach(b, "registry-http", "`HOST[:PORT]` of a registry that is accessed without TLS, as loopback addresses always are; may be repeated", c.addPlainHTTP)
	bindEach(b, "registry-ca", "`HOST=FILE` with the CA of a registry's certificate; may be repeated", c.addCA)
	b.BoolVar(&c.Private, "registry-private", false, "allow registries at private, loopback and link-local addresses; those named by --registry-http or --registry-ca are always allowed")
	b.StringArrayVar(&c.AllowedRegistries, "registry", nil, "`HOST[:PORT]` of a registry from which images may be pulled; may be repeated (default: any)")
	bindEach(b, "registry-auth", "`[ORG=]FILE` with registry credentials, a Docker config.json, for one organization or for all; may be repeated", c.addAuth)
	b.BoolVar(&c.NoVolumes, "no-volumes", false, "offer no volumes")
	bindEach(b, "device", "`KIND=NAME` of a GPU, where NAME is its CDI name; may be repeated (default: NVIDIA GPUs are detected)", c.addDevice)
	b.BoolVar(&c.Shared, "shared-quota", false, "limit shared CPUs to 5 of every 80 ms with bursts, as Fly.io does, even if CPUs are idle")
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

// parseMesh parses PORT or IP:PORT. If there is no IP address, the result contains
// 0.0.0.0.
func parseMesh(s string) (netip.AddrPort, error) {
	if port, err := strconv.ParseUint(s, 10, 16); err == nil && port > 0 {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port)), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 || !a.Addr().IsGlobalUnicast() || a.Addr().Zone() != "" {
		return netip.AddrPort{}, bourse.Errorf(bourse.CodeInvalid, "%s: use a port, or an IP address of this host with a port, such as 51820 or 203.0.113.7:51820", bourse.Quoted(s))
	}
	return a, nil
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

// addDevice parses KIND=NAME and adds the device.
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

// addAuth parses FILE or ORG=FILE and adds the file with credentials.
func (c *HostConfig) addAuth(s string) error {
	org, file, ok := strings.Cut(s, "=")
	switch {
	case !ok || strings.Contains(org, "/"): // no organization is given, or the "=" is part of a path
		if c.DockerAuth != "" {
			return bourse.Errorf(bourse.CodeInvalid, "%s: only one file for all organizations is allowed", bourse.Quoted(s))
		}
		c.DockerAuth = s
		return nil
	case file == "" || bourse.AppName(org).Validate() != nil:
		return bourse.Errorf(bourse.CodeInvalid, "%s: use FILE or ORG=FILE", bourse.Quoted(s))
	case c.OrgAuth[org] != "":
		return bourse.Errorf(bourse.CodeInvalid, "%s: only one file for organization %s is allowed", bourse.Quoted(s), org)
	case c.OrgAuth == nil:
		c.OrgAuth = map[string]string{}
	}
	c.OrgAuth[org] = file
	return nil
}
