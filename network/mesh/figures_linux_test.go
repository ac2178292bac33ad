package mesh

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
)

var figures = flag.Bool("figures", false, "measure the mesh in TestFigures")

// TestFigures compares connections between machines on two hosts with connections between the hosts themselves, which
// use another wireguard-go without firewall rules, and with tunnels, which proxies use. It also measures how soon new
// and moved machines are reachable.
// docs/benchmarks.md contains the results.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("this test only measures: go test ./network/mesh -run TestFigures -v -figures")
	}
	needRoot(t)
	out := newRouter(t)
	var hosts []*host
	for i := range 3 {
		ns := newNamespace(t)
		plug(t, ns, out, 1+i, 1500)
		hosts = append(hosts, newHost(t, ns, bourse.WorkerID(fmt.Sprintf("w%d", i)), fmt.Sprintf("10.1.%d.2:51820", 1+i)))
	}
	guests := []*guest{hosts[0].attach(1, "red"), hosts[1].attach(1, "red")}
	publish(hosts, guests)
	eventually(t, "connect", func() error {
		_, _, err := guests[0].dial(guests[1], time.Second)
		return err
	})
	plain := connectPlainly(t, hosts[:2])

	tunnels := serveTunnels(t, hosts, guests[1])
	type link struct {
		name    string
		connect func() (client, server net.Conn)
	}
	links := []link{
		{"machines", func() (net.Conn, net.Conn) { return pair(t, guests[0].ns, guests[1].ns, guests[1].address()) }},
		{"hosts", func() (net.Conn, net.Conn) { return pair(t, hosts[0].ns, hosts[1].ns, plain) }},
		{"host to machine through a tunnel", tunnels},
	}
	const rounds = 5
	rates, times := map[string][]float64{}, map[string][]float64{}
	for range rounds {
		for _, l := range links {
			rates[l.name] = append(rates[l.name], throughput(t, l.connect))
			times[l.name] = append(times[l.name], roundTrip(t, l.connect).Seconds()*1000)
		}
	}
	for _, l := range links {
		t.Logf("%s: %.0f MiB/s, median round trip %.3f ms", l.name, median(slices.Clone(rates[l.name])), median(slices.Clone(times[l.name])))
	}
	var ratios, added []float64
	for i := range rounds {
		ratios = append(ratios, rates["machines"][i]/rates["hosts"][i])
		added = append(added, times["machines"][i]-times["hosts"][i])
	}
	t.Logf("throughput / plain wireguard-go: %.2f; added to the median round trip: %.3f ms", median(ratios), median(added))

	var soon []float64
	for i := range 50 {
		guests = append(guests, hosts[1].attach(10+i, "red"))
		began := time.Now()
		publish(hosts, guests)
		for {
			if _, _, err := guests[0].dial(guests[len(guests)-1], 100*time.Millisecond); err == nil {
				break
			}
		}
		soon = append(soon, time.Since(began).Seconds())
	}
	t.Logf("a new machine is reachable from the other host, after the host has heard of it: median %.3f s, slowest of %d %.3f s", median(soon), len(soon), slices.Max(soon))

	var moved []float64
	for i := range 20 { // between two hosts, each of which is a peer only while it has the machine
		to := hosts[1+i%2].attach(100+i, "red")
		began := time.Now()
		publish(hosts, []*guest{guests[0], to})
		for {
			if names, err := guests[0].lookup("red.internal"); err != nil || !slices.Contains(names, to.address().String()) || len(names) > 2 {
				continue
			}
			if _, _, err := guests[0].dial(to, 100*time.Millisecond); err == nil {
				break
			}
		}
		moved = append(moved, time.Since(began).Seconds())
	}
	t.Logf("a moved machine is reachable by name: median %.3f s, slowest of %d %.3f s", median(moved), len(moved), slices.Max(moved))
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// connectPlainly connects two hosts with separate wireguard-go processes, and returns the second host's address.
func connectPlainly(t *testing.T, hosts []*host) netip.Addr {
	t.Helper()
	const port = 51999
	var keys []wgtypes.Key
	for range hosts {
		key, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	for i, h := range hosts {
		dir := t.TempDir()
		tunnel := exec.Command("/proc/self/exe", "tunnel", dir)
		tunnel.Stderr = t.Output()
		if _, err := within(h.ns, func() (struct{}, error) { return struct{}{}, tunnel.Start() }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tunnel.Process.Kill(); _ = tunnel.Wait() })
		_, all, err := net.ParseCIDR("fd99::/64")
		if err != nil {
			t.Fatal(err)
		}
		listen := port
		peer := wgtypes.PeerConfig{
			PublicKey: keys[1-i].PublicKey(), Endpoint: &net.UDPAddr{IP: net.IPv4(10, 1, byte(2-i), 2), Port: port}, AllowedIPs: []net.IPNet{*all},
		}
		eventually(t, "configure wireguard-go", func() error {
			_, err := within(h.ns, func() (struct{}, error) {
				c, err := wgctrl.New()
				if err != nil {
					return struct{}{}, err
				}
				defer c.Close()
				return struct{}{}, c.ConfigureDevice(LinkName(dir), wgtypes.Config{PrivateKey: &keys[i], ListenPort: &listen, Peers: []wgtypes.PeerConfig{peer}})
			})
			return err
		})
		ip(t, h.ns, fmt.Sprintf("addr add fd99::%d/64 dev %s nodad", 1+i, LinkName(dir)))
		ip(t, h.ns, "link set "+LinkName(dir)+" up")
	}
	return netip.MustParseAddr("fd99::2")
}

// pair returns both ends of a connection.
func pair(t *testing.T, from, to *os.File, address netip.Addr) (client, server net.Conn) {
	t.Helper()
	l, err := within(to, func() (net.Listener, error) {
		return net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	eventually(t, "connect", func() error {
		client, err = within(from, func() (net.Conn, error) {
			var d net.Dialer
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return d.DialContext(ctx, "tcp", l.Addr().String())
		})
		return err
	})
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}

// serveTunnels serves tunnels to a machine on the second host. It returns a function that connects from the first host to
// the machine through a new tunnel, as a proxy does, and returns both ends of the connection.
func serveTunnels(t *testing.T, hosts []*host, to *guest) func() (client, server net.Conn) {
	t.Helper()
	ca, err := admission.NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issue := func(id bourse.WorkerID, role bourse.Role) *admission.Credentials {
		pair, err := ca.Issue(admission.Identity{ID: id, Role: role}, nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		c, err := admission.NewCredentials(ca.Pair().Cert, pair)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	machine, err := within(to.ns, func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") })
	if err != nil {
		t.Fatal(err)
	}
	public, err := within(hosts[1].ns, func() (net.Listener, error) { return net.Listen("tcp", "10.1.2.2:0") })
	if err != nil {
		t.Fatal(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := within(to.ns, func() (net.Conn, error) { return net.Dial("tcp", machine.Addr().String()) })
		if err != nil {
			fabric.WriteFailure(w, err)
			return
		}
		fabric.ServeTunnel(w, r, conn)
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		config := issue(to.Worker, bourse.RoleWorker).Server(bourse.RoleProxy)
		if err := direct.Serve(ctx, public, direct.Handler(to.Worker, handler), config, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	})
	proxy := direct.NewOver(func(ctx context.Context, network, address string) (net.Conn, error) {
		return within(hosts[0].ns, func() (net.Conn, error) { var d net.Dialer; return d.DialContext(ctx, network, address) })
	}, issue("proxy", bourse.RoleProxy).Client, admission.Proof{})
	t.Cleanup(func() { cancel(); wg.Wait(); proxy.Close(); _ = machine.Close() })
	member := bourse.Member{ID: to.Worker, Role: bourse.RoleWorker, Region: "gru", Address: public.Addr().String()}
	return func() (net.Conn, net.Conn) {
		client, err := fabric.DialTunnel(ctx, proxy, member, fabric.TunnelRequest{Machine: to.ID, Port: 80})
		if err != nil {
			t.Fatal(err)
		}
		server, err := machine.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = client.Close(), server.Close() })
		return client, server
	}
}

// throughput returns the MiB per second of one connection.
func throughput(t *testing.T, connect func() (client, server net.Conn)) float64 {
	t.Helper()
	client, server := connect()
	const duration = 3 * time.Second
	go func() {
		data := make([]byte, 128<<10)
		for began := time.Now(); time.Since(began) < duration; {
			if _, err := client.Write(data); err != nil {
				break
			}
		}
		_ = client.(interface{ CloseWrite() error }).CloseWrite()
	}()
	began := time.Now()
	n, err := io.Copy(io.Discard, server)
	if err != nil {
		t.Fatal(err)
	}
	return float64(n) / (1 << 20) / time.Since(began).Seconds()
}

// roundTrip returns the median time of an exchange of one byte.
func roundTrip(t *testing.T, connect func() (client, server net.Conn)) time.Duration {
	t.Helper()
	client, server := connect()
	go func() { _, _ = io.Copy(server, server) }()
	var times []time.Duration
	for range 1000 {
		began := time.Now()
		if err := echo(client, client, []byte{1}); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times[len(times)/2]
}
