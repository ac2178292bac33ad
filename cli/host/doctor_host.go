package host

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/driver/container"
	"github.com/bourse-dev/bourse/driver/vm"
	"github.com/bourse-dev/bourse/image"
	"github.com/bourse-dev/bourse/internal/redial"
	"github.com/bourse-dev/bourse/network"
	"github.com/bourse-dev/bourse/volume"
)

// workerOf returns the settings of the host's worker, or nil if the host runs no
// worker. For a host that is not part of a cluster, it returns the defaults.
func workerOf(servers []serve.Server) *serve.HostConfig {
	if servers == nil {
		return &serve.HostConfig{Containerd: serve.ContainerdAuto, Network: serve.NetworkAuto}
	}
	for _, s := range servers {
		if s.Host != nil {
			return s.Host
		}
	}
	return nil
}

// checkCgroups checks which of the machines' resource limits this host can enforce.
func checkCgroups() []finding { return []finding{compareLabels(container.HostLabels())} }

// compareLabels returns a finding about the limits that this host can enforce. labels
// contains a driver's labels for the host.
func compareLabels(labels map[string]string) finding {
	const name = "cgroups"
	var enforced, missing []string
	for _, limit := range []string{"memory", "cpu", "pids"} {
		if labels["limit."+limit] != "" {
			enforced = append(enforced, limit)
		} else {
			missing = append(missing, limit)
		}
	}
	switch {
	case len(enforced) == 0:
		return warning(name, "mount cgroups: mount -t cgroup2 none /sys/fs/cgroup", "no cgroups are mounted: machines' limits are not enforced")
	case len(missing) > 0:
		return warning(name, "enable these controllers in the kernel, for example with cgroup_enable=memory on its command line",
			"%s with %s: machines' %s limits are not enforced", labels["cgroup"], strings.Join(enforced, ", "), strings.Join(missing, ", "))
	}
	return ok(name, "%s with %s", labels["cgroup"], strings.Join(enforced, ", "))
}

// checkContainerd checks that containerd answers and that it can unpack images.
func checkContainerd(ctx context.Context, c *serve.HostConfig) []finding {
	const name = "containerd"
	if c.Containerd == serve.ContainerdNone {
		return []finding{ok(name, "not used")}
	}
	address := serve.ContainerdAddress(c.Containerd)
	if address == "" {
		if os.Geteuid() != 0 {
			return []finding{warning(name, asRoot, "not checked: only root uses it")}
		}
		return []finding{warning(name, "install containerd and runc, for example with apt-get install containerd", "not found: orders for images are refused")}
	}
	const try = "systemctl status containerd; journalctl -u containerd"
	if _, err := os.Stat(strings.TrimPrefix(address, "unix://")); err != nil {
		return []finding{failed(name, try, err)}
	}
	client, err := redial.Containerd(address)
	if err != nil {
		return []finding{problem(name, try, "%s cannot be opened: %v", address, err)}
	}
	defer client.Close()
	version, err := client.Version(ctx)
	if err != nil {
		return []finding{problem(name, try, "%s does not answer: %v", address, err)}
	}
	const snapshotter = image.DefaultSnapshotter
	plugins, err := client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1,id=="+snapshotter)
	if err != nil {
		return []finding{problem(name, try, "%s does not list its plugins: %v", address, err)}
	}
	if len(plugins.Plugins) == 0 {
		return []finding{problem(name, "remove "+snapshotter+" from disabled_plugins in /etc/containerd/config.toml", "it has no snapshotter %s", snapshotter)}
	}
	if broken := plugins.Plugins[0].InitErr; broken != nil {
		return []finding{problem(name, "use a kernel with overlayfs, and a disk that supports it, then restart containerd", "its snapshotter %s does not work: %s", snapshotter, broken.GetMessage())}
	}
	return []finding{ok(name, "%s with snapshotter %s at %s", version.Version, snapshotter, address)}
}

// checkVMs checks whether images can run in virtual machines.
func checkVMs(c *serve.HostConfig) []finding {
	const name = "virtual machines"
	host, err := vm.New(vm.Config{Kernel: c.Kernel})
	switch {
	case err != nil && c.Runtime == bourse.RuntimeVM:
		return []finding{problem(name, "install what is missing; see docs/sandboxes.md", "orders for images are refused: %v", err)}
	case err != nil:
		return []finding{ok(name, "not available: %v", err)}
	case host.KVM() != nil:
		return []finding{ok(name, "available, but only with slow emulation, which orders must allow: %v", host.KVM())}
	}
	return []finding{ok(name, "available with KVM")}
}

// checkNetworks checks whether machines that run in containers can have their own
// networks.
func checkNetworks(c *serve.HostConfig) []finding {
	const name = "networks"
	if c.Network == serve.NetworkHost {
		return []finding{ok(name, "machines use the network of the host")}
	}
	if os.Geteuid() != 0 {
		return []finding{warning(name, asRoot, "not checked: only root can create networks")}
	}
	if err := network.CheckHost(); err != nil {
		f := warning(name, "use Linux 5.10 or newer with nftables, veth and network namespaces", "orders for images are refused: %v", err)
		if c.Network != serve.NetworkAuto {
			f.Status, f.Finding = statusProblem, fmt.Sprintf("the worker cannot start: %v", err)
		}
		return []finding{f}
	}
	return []finding{ok(name, "nftables and network namespaces are available")}
}

// checkVolumes checks whether machines can have volumes.
func checkVolumes(c *serve.HostConfig) []finding {
	const name = "volumes"
	if c.NoVolumes {
		return []finding{ok(name, "not offered")}
	}
	if os.Geteuid() != 0 {
		return []finding{warning(name, asRoot, "not checked: only root can mount volumes")}
	}
	if err := volume.CheckHost(); err != nil {
		return []finding{warning(name, "install e2fsprogs, and use a kernel with loop devices and ext4; or set no-volumes = true", "%s", cli.MessageOf(err))}
	}
	return []finding{ok(name, "loop devices and e2fsprogs are available")}
}

// minFiles is the lowest limit on open files that does not cause a warning. Servers keep
// several connections open for each machine, member and client.
const minFiles = 65536

// checkLimits checks the limits of the systemd service that runs the servers. If
// systemd is not running, it checks the limits that servers would inherit from this
// process.
func checkLimits(ctx context.Context, configured bool) []finding {
	const name = "limits"
	if configured && systemd() {
		out, err := exec.CommandContext(ctx, "systemctl", "show", "bourse.service", "--property", "LoadState,ActiveState,LimitNOFILE,TasksMax,KillMode,OOMPolicy").Output()
		if err != nil {
			return []finding{warning("service", "systemctl show bourse.service", "not checked: %v", err)}
		}
		return checkService(string(out))
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return []finding{warning(name, "ulimit -Hn", "not checked: %v", err)}
	}
	if limit.Max < minFiles {
		return []finding{warning(name, "ulimit -Hn 1048576, as root, before the servers are started", "servers that are started here may open only %d files", limit.Max)}
	}
	return []finding{ok(name, "servers that are started here may open %d files", limit.Max)}
}

// checkService checks properties of the systemd unit that runs the servers. shown is the
// output of "systemctl show".
func checkService(shown string) []finding {
	const name = "service"
	p := map[string]string{}
	for line := range strings.Lines(shown) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		p[key] = value
	}
	if p["LoadState"] != "loaded" {
		return []finding{warning(name, "bourse serve, to run the servers of this host", "there is no bourse.service: the servers are not started with the host")}
	}
	var found []finding
	if p["ActiveState"] != "active" {
		found = append(found, problem(name, "systemctl restart bourse; journalctl -u bourse", "bourse.service is %s", p["ActiveState"]))
	}
	const edit = "systemctl edit bourse, below [Service]: "
	if p["KillMode"] != "process" {
		found = append(found, problem(name, edit+"KillMode=process", "KillMode is %s: machines are killed when the service restarts", p["KillMode"]))
	}
	if p["OOMPolicy"] != "continue" {
		found = append(found, warning(name, edit+"OOMPolicy=continue", "OOMPolicy is %s: all machines are killed when one of them runs out of memory", p["OOMPolicy"]))
	}
	if p["TasksMax"] != "infinity" {
		found = append(found, warning(name, edit+"TasksMax=infinity", "TasksMax is %s, for the servers and all machines together", p["TasksMax"]))
	}
	if n, err := strconv.ParseUint(p["LimitNOFILE"], 10, 64); err == nil && n < minFiles {
		found = append(found, warning(name, edit+"LimitNOFILE=1048576", "LimitNOFILE is %d: a server can open only that many files", n))
	}
	if found == nil {
		found = []finding{ok(name, "bourse.service is active, and its limits suffice")}
	}
	return found
}

// checkDNS resolves the host names that the servers use. If they use none, it checks only
// that a name server is configured.
func checkDNS(ctx context.Context, servers []serve.Server) []finding {
	config, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return []finding{warning("DNS", "add a nameserver line to /etc/resolv.conf", "no name server is configured: %v", err)}
	}
	return resolve(ctx, string(config), namesIn(servers), net.DefaultResolver.LookupHost)
}

// hostName contains a name that a server must resolve, and the status to report if it
// cannot.
type hostName struct {
	host   string
	status status
}

// namesIn returns the host names of other members, NATS servers and registries that are
// in the configuration. It adds Docker Hub if no registries are configured, because
// images then come from there.
func namesIn(servers []serve.Server) []hostName {
	var names []hostName
	add := func(host string, is status) {
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		n := hostName{host, is}
		if net.ParseIP(host) == nil && host != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for _, s := range servers {
		for _, address := range s.Join {
			add(address, statusProblem)
		}
		for _, text := range s.NATS.URLs {
			if u, err := url.Parse(text); err == nil {
				add(u.Hostname(), statusProblem)
			}
		}
	}
	if worker := workerOf(servers); worker != nil && worker.Containerd != serve.ContainerdNone {
		before := len(names)
		for _, host := range worker.AllowedRegistries {
			add(host, statusWarning)
		}
		for _, host := range slices.Sorted(maps.Keys(worker.Registries)) {
			add(host, statusWarning)
		}
		if len(names) == before && len(worker.AllowedRegistries)+len(worker.Registries) == 0 {
			add("registry-1.docker.io", statusWarning)
		}
	}
	return names
}

// resolve calls lookup for each host name, and returns a finding for each. config holds
// the contents of resolv.conf. If config lists no name server, resolve returns only a
// warning.
func resolve(ctx context.Context, config string, names []hostName, lookup func(ctx context.Context, host string) ([]string, error)) []finding {
	const check = "DNS"
	var nameservers []string
	for lines := bufio.NewScanner(strings.NewReader(config)); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == "nameserver" {
			nameservers = append(nameservers, f[1])
		}
	}
	if len(nameservers) == 0 {
		return []finding{warning(check, "add a nameserver line to /etc/resolv.conf", "/etc/resolv.conf has no name server")}
	}
	found := make([]finding, len(names))
	forEach(len(names), func(i int) {
		ctx, cancel := context.WithTimeout(ctx, stepLimit)
		defer cancel()
		addresses, err := lookup(ctx, names[i].host)
		if err != nil {
			found[i] = finding{check, names[i].status, err.Error(), "check the name, and the name servers in /etc/resolv.conf: " + strings.Join(nameservers, ", ")}
			return
		}
		found[i] = ok(check, "%s is %s", names[i].host, addresses[0])
	})
	if len(found) == 0 {
		found = []finding{ok(check, "name servers: %s", strings.Join(nameservers, ", "))}
	}
	return found
}
