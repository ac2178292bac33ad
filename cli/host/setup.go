package host

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// setup contains the settings that "bourse init", "bourse join" and "bourse restore" share.
type setup struct {
	shell   *cli.Shell
	config  string // path of the configuration; the credentials are in the same directory
	data    string
	name    string
	region  string
	address string
	roles   []string
	here    bool // whether to run the servers in this process
}

// defaultData is the default directory for the servers' data.
const defaultData = "/var/lib/bourse"

func (h *setup) bind(c *cobra.Command, roles []string) {
	flags := c.Flags()
	flags.StringVar(&h.config, "config", serve.DefaultFile, "`file` to write the configuration to; credentials are written to its directory")
	flags.StringVar(&h.data, "data", defaultData, "`directory` for the servers' data")
	flags.StringVarP(&h.name, "name", "n", "", "`name` of the host in the cluster (default: its host name)")
	flags.StringVar(&h.address, "address", "", "`IP` address at which the cluster's other hosts reach this one (default: that of the default route)")
	flags.StringSliceVar(&h.roles, "role", roles, "`servers` that this host runs: worker, broker and proxy, separated by commas")
	flags.BoolVar(&h.here, "foreground", false, "run the servers in the foreground, even where systemd runs")
	cli.CompleteFixed(c, "role", "worker", "broker", "proxy")
}

// dir returns the credentials directory.
func (h *setup) dir() admission.Dir { return admission.Dir(filepath.Dir(h.config)) }

// checkNoConfig returns an error if this host already has a configuration.
func (h *setup) checkNoConfig() error {
	_, err := os.Lstat(h.config)
	switch {
	case err == nil:
		return cli.Hint(bourse.Errorf(bourse.CodeAlreadyExists, "this host is already part of a cluster: %s exists", h.config),
			"bourse serve, to run its servers", "remove "+h.config+" and "+h.data+", to start again")
	case !errors.Is(err, fs.ErrNotExist):
		return bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	return nil
}

// find checks the settings and fills in those that were not given.
func (h *setup) find(ctx context.Context) error {
	if h.name == "" {
		name, err := os.Hostname()
		if err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "find the host name: %w; use --name", err)
		}
		h.name, _, _ = strings.Cut(strings.ToLower(name), ".")
	}
	if bourse.WorkerID(h.name).Validate() != nil {
		return bourse.Errorf(bourse.CodeInvalid, "the name %s is invalid: use --name with 1 to 63 of a-z, 0-9 and \"-\", beginning and ending with a letter or digit", bourse.Quoted(h.name))
	}
	for _, role := range h.roles {
		if !slices.Contains(bourse.ServerRoles(), bourse.Role(role)) {
			return bourse.Errorf(bourse.CodeInvalid, "--role %s: use worker, broker and proxy", bourse.Quoted(role))
		}
	}
	slices.Sort(h.roles)
	h.roles = slices.Compact(h.roles)
	if h.address == "" {
		address, err := ownAddress(ctx)
		if err != nil {
			return err
		}
		h.address = address.String()
	}
	if a, err := netip.ParseAddr(h.address); err != nil || a.IsUnspecified() {
		return bourse.Errorf(bourse.CodeInvalid, "--address %s: use an IP address of this host", bourse.Quoted(h.address))
	}
	return nil
}

// portsFree returns an error if a port that this host's servers need is in use. It is called before anything is
// written. Without it, a server whose port is in use would be restarted again and again.
func (h *setup) portsFree(ctx context.Context) error {
	for _, name := range h.roles {
		role := bourse.Role(name)
		api, gossip := serve.Ports(role)
		for _, l := range []struct {
			network string
			port    uint16
		}{{"tcp", api}, {"tcp", gossip}, {"udp", gossip}} {
			if err := canListen(ctx, l.network, net.JoinHostPort(h.address, strconv.Itoa(int(l.port))), role); err != nil {
				return err
			}
		}
		if role == bourse.RoleProxy {
			if err := canListen(ctx, "tcp", proxyHTTP, role); err != nil {
				return err
			}
		}
	}
	return nil
}

// canListen returns an error if a server could not listen at an address. Errors:
// conflict if another program listens there, otherwise invalid.
func canListen(ctx context.Context, network, address string, role bourse.Role) error {
	var listen net.ListenConfig
	var l io.Closer
	var err error
	if network == "udp" {
		l, err = listen.ListenPacket(ctx, network, address)
	} else {
		l, err = listen.Listen(ctx, network, address)
	}
	if err == nil {
		return l.Close()
	}
	code := bourse.CodeInvalid
	if errors.Is(err, syscall.EADDRINUSE) {
		code = bourse.CodeConflict
	}
	return cli.Hint(bourse.Errorf(code, "the %s cannot listen: %w", role, err), "free the port, choose other servers with --role, or another --address")
}

// proxyHTTP is the address where a new host's proxy serves HTTP.
const proxyHTTP = ":80"

// ownAddress returns the source address of the default route. If there is no such
// route, it returns the first address that is not a loopback address.
func ownAddress(ctx context.Context) (netip.Addr, error) {
	// Connecting a UDP socket only makes the kernel choose a route. It does not send a
	// packet.
	if c, err := new(net.Dialer).DialContext(ctx, "udp", "192.0.2.1:9"); err == nil {
		defer c.Close()
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
			return a.AddrPort().Addr().Unmap(), nil
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, bourse.Errorf(bourse.CodeInvalid, "find this host's address: %w; use --address", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, bourse.Errorf(bourse.CodeInvalid, "this host has no address that other hosts can reach: use --address")
}

// networks describes how this host's servers and other hosts reach each other.
type networks struct {
	address string   // IP address at which the host's servers listen; "" means that they use only NATS
	mesh    bool     // whether the worker's private networks are connected to those of other workers
	join    []string // gossip addresses of other servers
	nats    []string // addresses of NATS servers; may be empty if address is set
}

// common returns the settings that all of a host's servers share.
func (n *networks) common() map[string]any {
	if n.address == "" {
		return map[string]any{"nats": n.nats}
	}
	settings := map[string]any{"address": n.address}
	if len(n.join) > 0 {
		settings["join"] = n.join
	}
	return settings
}

// server returns the settings for the server with the given role. Even if the host's servers listen at an address,
// brokers and proxies also use NATS, because they must reach every worker, including those that use only NATS. A worker
// uses either the address or NATS.
func (n *networks) server(role bourse.Role) map[string]any {
	settings := map[string]any{}
	if role == bourse.RoleProxy {
		settings["http"] = []string{proxyHTTP}
	}
	if role == bourse.RoleWorker && n.mesh {
		settings["mesh"] = meshPort
	}
	if role != bourse.RoleWorker && n.address != "" && len(n.nats) > 0 {
		settings["nats"] = n.nats
	}
	return settings
}

// meshPort is the UDP port of a new worker's mesh. It is WireGuard's default port.
const meshPort = "51820"

// meshFree reports whether a new worker on this host can have a mesh: the user must be root, as private networks
// require, and meshPort must be free.
func meshFree(ctx context.Context) bool {
	return os.Geteuid() == 0 && canListen(ctx, "udp", ":"+meshPort, bourse.RoleWorker) == nil
}

// write creates the host's configuration. It is called once everything that the
// configuration refers to exists.
func (h *setup) write(cluster string, n networks) error {
	settings := n.common()
	maps.Copy(settings, map[string]any{"cluster": cluster, "name": h.name, "region": h.region, "data": h.data, "credentials": string(h.dir())})
	text, err := toml.Marshal(settings)
	if err != nil {
		return bourse.Errorf(bourse.CodeInternal, "encode the configuration: %w", err)
	}
	text = slices.Concat([]byte(serve.FileHeader+"\n"), text, []byte(serve.CommonSettings("")))
	for _, role := range h.roles {
		own := n.server(bourse.Role(role))
		lines, err := toml.Marshal(own)
		if err != nil {
			return bourse.Errorf(bourse.CodeInternal, "encode the configuration of the %s: %w", role, err)
		}
		text = append(fmt.Appendf(text, "\n[%s]\n", role), lines...)
		text = append(text, serve.CommonSettings(bourse.Role(role), slices.Collect(maps.Keys(own))...)...)
	}
	if err := wholefile.Write(h.config, text, 0o600); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "write the configuration: %w", err)
	}
	return nil
}

// makeDirs creates the credentials directory and the data directory.
func (h *setup) makeDirs() error {
	for _, dir := range []string{string(h.dir()), h.data} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return cli.Hint(bourse.Errorf(bourse.CodeInvalid, "%w", err), "run this command as root", "--config and --data with paths that you may write to")
		}
	}
	return nil
}

// start runs the host's servers, and calls ready once all of them are ready.
func (h *setup) start(ctx context.Context, ready func(context.Context) error) error {
	if !h.here && systemd() {
		if err := h.startService(ctx); err != nil {
			return err
		}
		return ready(ctx)
	}
	ctx, stop := h.shell.Lifetime(ctx, false)
	defer stop()
	return serve.RunHost(ctx, h.shell, h.config, func(serve.Ready) error { return nil }, func() error { return ready(ctx) })
}

// systemd reports whether systemd is the host's init system.
func systemd() bool {
	info, err := os.Stat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// unitPath is the path of the unit that setup writes if no package has installed one, or if the configuration is
// not at its default path. systemd prefers a unit at this path to a package's unit.
const unitPath = "/etc/systemd/system/bourse.service"

// unit is the systemd unit of a host's servers, the same as in packages. Machines keep running when the unit is
// restarted. If one machine runs out of memory, the servers and the other machines keep running.
//
//go:embed bourse.service
var unit string

// unitOf returns the unit for the program and the configuration at the given paths.
func unitOf(program, config string) string {
	return strings.NewReplacer("/usr/bin/bourse", program, serve.DefaultFile, config).Replace(unit)
}

func (h *setup) startService(ctx context.Context) error {
	installed := exec.CommandContext(ctx, "systemctl", "cat", "bourse.service").Run() == nil
	if !installed || h.config != serve.DefaultFile {
		exe, err := os.Executable()
		if err != nil {
			return bourse.Errorf(bourse.CodeInternal, "find this program: %w", err)
		}
		if err := wholefile.Write(unitPath, []byte(unitOf(exe, h.config)), 0o644); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "write the service: %w", err)
		}
		if err := systemctl(ctx, "daemon-reload"); err != nil {
			return err
		}
	}
	return systemctl(ctx, "enable", "--now", "bourse.service")
}

func systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return cli.Hint(bourse.Errorf(bourse.CodeInternal, "systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out))), "journalctl -u bourse")
	}
	return nil
}

// printSettings prints the host's settings.
func (h *setup) printSettings() {
	containerd := "not found: install it to run images, or set allow-host = true below [worker] in " + h.config + " to run commands of this host"
	if _, err := os.Stat("/run/containerd/containerd.sock"); err == nil {
		containerd = "/run/containerd/containerd.sock"
	}
	if !slices.Contains(h.roles, string(bourse.RoleWorker)) {
		containerd = "not needed without a worker"
	}
	for _, line := range [][2]string{
		{"name", h.name},
		{"address", h.address},
		{"region", h.region},
		{"servers", strings.Join(h.roles, ", ")},
		{"containerd", containerd},
		{"configuration", h.config},
		{"data", h.data},
	} {
		fmt.Fprintf(h.shell.Err, "  %-14s %s\n", line[0], cmp.Or(line[1], "-"))
	}
}
