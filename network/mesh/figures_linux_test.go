package mesh

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/bourse-dev/bourse"
)

var figures = flag.Bool("figures", false, "measure the mesh in TestFigures")

// TestFigures compares connections between machines on two hosts with connections between the hosts themselves, which
// use another wireguard-go without firewall rules. It also measures how soon new machines are reachable.
// docs/benchmarks.md contains the results.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("this test only measures: go test ./network/mesh -run TestFigures -v -figures")
	}
	needRoot(t)
	out := newRouter(t)
	var hosts []*host
	for i := range 2 {
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
	plain := connectPlainly(t, hosts)

	const rounds = 5
	var ratios, added []float64
	for range rounds {
		mesh, base := throughput(t, guests[0].ns, guests[1].ns, guests[1].address()), throughput(t, hosts[0].ns, hosts[1].ns, plain)
		ratios = append(ratios, mesh/base)
		slow, fast := roundTrip(t, guests[0].ns, guests[1].ns, guests[1].address()), roundTrip(t, hosts[0].ns, hosts[1].ns, plain)
		added = append(added, (slow-fast).Seconds()*1000)
		t.Logf("machines: %.0f MiB/s, %v; hosts: %.0f MiB/s, %v", mesh, slow, base, fast)
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

// throughput returns the MiB per second of one connection.
func throughput(t *testing.T, from, to *os.File, address netip.Addr) float64 {
	t.Helper()
	client, server := pair(t, from, to, address)
	const duration = 3 * time.Second
	go func() {
		data := make([]byte, 128<<10)
		for began := time.Now(); time.Since(began) < duration; {
			if _, err := client.Write(data); err != nil {
				break
			}
		}
		_ = client.Close()
	}()
	began := time.Now()
	n, err := io.Copy(io.Discard, server)
	if err != nil {
		t.Fatal(err)
	}
	return float64(n) / (1 << 20) / time.Since(began).Seconds()
}

// roundTrip returns the median time of an exchange of one byte.
func roundTrip(t *testing.T, from, to *os.File, address netip.Addr) time.Duration {
	t.Helper()
	client, server := pair(t, from, to, address)
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
