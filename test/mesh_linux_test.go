package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestMesh runs machines of two networks on two workers with real daemons. A machine must reach the machine of its network on
// the other worker, by name and address, and no other. A killed daemon must not interrupt that. A laptop with the printed
// configuration must reach the machines of its network, and no others, until it is removed.
func TestMesh(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("private networks need root")
	}
	l := newLAN(t)
	place := func(srv *server, h *host, join string) *server {
		srv.Launch, srv.Dial = h.launch, h.dial
		srv.Args = append(srv.Args, "--insecure", "--listen", h.addr.String()+":4280", "--gossip", h.addr.String()+":7946", "--join", join)
		return srv
	}
	front := l.host(1)
	join := front.addr.String() + ":7946"
	broker := place(newServer(t, "b1", "serve", "broker", "--name", "b1"), front, join)
	var workers []*server
	dirs := map[string]string{}
	for _, name := range []string{"w1", "w2"} {
		w, dir := newWorker(t, name, "gru", "--allow-host", "--network", "all", "--mesh", "51820")
		workers, dirs[name] = append(workers, place(w, l.host(1), join)), dir
	}
	startAll(t, append(workers, broker)...)
	api := client(t, broker)
	for _, a := range []machinesapi.CreateApp{{Name: "red", Network: "red"}, {Name: "blue", Network: "blue"}} {
		eventually(t, waitTimeout, "the app is created", func() error { // at first, the broker does not know its cluster
			_, err := api.CreateApp(t.Context(), a)
			return err
		})
	}
	// serve runs a machine, and a program in its network that greets with its name.
	serve := func(app bourse.AppName, worker string) (machinesapi.Machine, *os.File) {
		t.Helper()
		order := on(worker, sleeper("gru", "bourse-mesh-"+worker))
		order.Name = worker
		var m machinesapi.CreatedMachine
		eventually(t, waitTimeout, "create a machine on "+worker, func() (err error) {
			m, err = api.Create(t.Context(), app, order, "")
			return err
		})
		ns, err := os.Open(filepath.Join(dirs[worker], "network", "ns", string(m.ID)))
		if err != nil {
			t.Fatal(err)
		}
		listener, err := inNamespace(ns, func() (net.Listener, error) { return net.Listen("tcp", "[::]:8080") })
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = fmt.Fprintf(c, "%s on %s", app, worker)
				_ = c.Close()
			}
		})
		t.Cleanup(func() { _ = listener.Close(); wg.Wait(); _ = ns.Close() })
		return m.Machine, ns
	}
	on1, red1 := serve("red", "w1")
	red2, _ := serve("red", "w2")
	blue2, _ := serve("blue", "w2")
	fetch := func(to machinesapi.Machine) (string, error) {
		c, err := inNamespace(red1, func() (net.Conn, error) { return net.DialTimeout("tcp", "["+to.PrivateIP+"]:8080", time.Second) })
		if err != nil {
			return "", err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		got, err := io.ReadAll(c)
		return string(got), err
	}
	took := eventually(t, waitTimeout, "the machine on the other worker answers", func() error {
		got, err := fetch(red2)
		if err == nil && got != "red on w2" {
			err = fmt.Errorf("got %q, want \"red on w2\"", got)
		}
		return err
	})
	t.Logf("the machine was reached after %s", took.Round(time.Millisecond))
	resolver := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return inNamespace(red1, func() (net.Conn, error) { return net.Dial("udp", "[fdaa::3]:53") })
	}}
	eventually(t, waitTimeout, "its name", func() error {
		got, err := resolver.LookupHost(t.Context(), "w2.vm.red.internal")
		if err == nil && !slices.Equal(got, []string{red2.PrivateIP}) {
			err = fmt.Errorf("got %q, want %s", got, red2.PrivateIP)
		}
		return err
	})
	if got, err := fetch(blue2); err == nil {
		t.Errorf("a machine of another network answered %q, want no connection", got)
	}
	w, err := api.Worker(t.Context(), "w1")
	if err != nil || w.Facts == nil || w.Facts.Mesh == nil || len(w.Facts.Mesh.Peers) != 1 || w.Facts.Mesh.Peers[0].Worker != "w2" || !w.Facts.Mesh.Peers[0].Reachable(time.Now()) {
		t.Errorf("the worker's facts: %+v, %v; want w2 as the only peer, reachable", w.Facts, err)
	}
	laptop := l.host(1)
	config, err := laptop.command(broker.API, "wireguard", "create", "laptop", "--app", "red")
	if err != nil {
		t.Fatal(err)
	}
	laptop.connect(t, config)
	for m, want := range map[*machinesapi.Machine]string{&on1: "red on w1", &red2: "red on w2"} {
		eventually(t, waitTimeout, "the laptop reaches "+want, func() error {
			names, err := laptop.lookUp(config, string(m.ID)+".vm.red.internal")
			if err == nil && !slices.Equal(names, []string{m.PrivateIP}) {
				err = fmt.Errorf("the name resolves to %q, want %s", names, m.PrivateIP)
			}
			if err != nil {
				return err
			}
			got, err := laptop.read("[" + names[0] + "]:8080")
			if err == nil && got != want {
				err = fmt.Errorf("got %q, want %q", got, want)
			}
			return err
		})
	}
	if got, err := laptop.read("[" + blue2.PrivateIP + "]:8080"); err == nil {
		t.Errorf("a machine of another network answered the laptop with %q, want no connection", got)
	}
	if names, err := laptop.lookUp(config, "w2.vm.blue.internal"); err == nil {
		t.Errorf("the laptop resolves a name of another network to %q, want an error", names)
	}
	if err := workers[1].Kill(); err != nil {
		t.Fatal(err)
	}
	if got, err := fetch(red2); err != nil || got != "red on w2" {
		t.Errorf("request after the daemon was killed: %q, %v; want \"red on w2\"", got, err)
	}
	if err := workers[1].Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "the machine answers after its daemon's restart", func() error {
		_, err := fetch(red2)
		return err
	})
	if _, err := laptop.read("[" + red2.PrivateIP + "]:8080"); err != nil {
		t.Errorf("request from the laptop after the daemon was killed: %v", err)
	}
	if _, err := laptop.command(broker.API, "wireguard", "remove", "laptop"); err != nil {
		t.Fatal(err)
	}
	took = eventually(t, 5*time.Second, "the removed laptop is cut off", func() error {
		for _, m := range []*machinesapi.Machine{&on1, &red2} {
			if _, err := laptop.read("[" + m.PrivateIP + "]:8080"); err == nil {
				return fmt.Errorf("the laptop still reaches the machine on %s", m.Name)
			}
		}
		return nil
	})
	t.Logf("cut off after %s", took.Round(time.Millisecond))
}

// inNamespace calls f on a thread in another network namespace.
func inNamespace[T any](ns *os.File, f func() (T, error)) (out T, err error) {
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with this goroutine
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			out, err = f()
		}
	})
	wg.Wait()
	return out, err
}
