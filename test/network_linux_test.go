package test

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestNetworksAreSeparate runs two apps on one worker. Their machines serve the same port, each in its app's network. A
// machine must reach the machines in its network by name and address, and no others. The default app's names must exist
// before any app is created.
func TestNetworksAreSeparate(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1)
	image := y.push("web:1", server80(httpd...), program(t, "curl"))
	first := y.order(image.Ref())
	first.Name = "db"
	first.Config.Files = []bourse.File{{GuestPath: "/www/index.html", RawValue: []byte("db")}}
	m := y.run(bourse.DefaultAppName, first)
	for _, name := range []string{"default.internal", "db.vm.default.internal"} {
		eventually(t, waitTimeout, name, func() error {
			if out, code := y.sh(bourse.DefaultAppName, m.ID, "curl -gsS -m 3 -o /dev/null http://"+name+":8080/ 2>&1"); code != 0 {
				return bourse.Errorf(bourse.CodeUnavailable, "%q, code %d", out, code)
			}
			return nil
		})
	}
	for _, a := range []machinesapi.CreateApp{{Name: "red", Network: "red"}, {Name: "rose", Network: "red"}, {Name: "blue", Network: "blue"}} {
		if _, err := y.api.CreateApp(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	serve := func(app bourse.AppName) machinesapi.Machine {
		order := y.order(image.Ref())
		order.Config.Files = []bourse.File{{GuestPath: "/www/index.html", RawValue: []byte("served by " + string(app))}}
		m := y.run(app, order)
		y.answers(app, m.ID, "served by "+string(app))
		return m
	}
	red, other, blue := serve("red"), serve("red"), serve("blue")
	rose := serve("rose")
	ask := func(app bourse.AppName, from machinesapi.Machine, host string) (string, int) {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		return y.sh(app, from.ID, "curl -gsS -m 3 http://"+host+":8080/ 2>&1")
	}
	for name, host := range map[string]string{
		"its own name": "localhost", "another one's address": other.PrivateIP, "another one's id": string(other.ID) + ".vm.red.internal", "another one's name": other.Name + ".vm.red.internal",
		"the app's name": "red.internal", "the app's name in the region": "gru.red.internal",
	} {
		eventually(t, waitTimeout, name, func() error { // names depend on the view, which is updated with a delay
			if out, code := ask("red", red, host); code != 0 || out != "served by red" {
				return bourse.Errorf(bourse.CodeUnavailable, "request to %s: %q, code %d; want \"served by red\"", host, out, code)
			}
			return nil
		})
	}
	if out, code := ask("red", red, rose.PrivateIP); code != 0 || out != "served by rose" {
		t.Errorf("request to another app of the same network: %q, code %d; want \"served by rose\"", out, code)
	}
	for name, host := range map[string]string{"address": blue.PrivateIP, "name": "blue.internal"} {
		if out, code := ask("red", red, host); code == 0 || strings.Contains(out, "served") {
			t.Errorf("a machine of another network was reached by its %s: %q", name, out)
		}
	}
	if out, code := ask("blue", blue, red.PrivateIP); code == 0 {
		t.Errorf("a machine of the first network was reached from the other network: %q", out)
	}
	y.bounce(red, blue)
	if out, code := ask("red", red, other.PrivateIP); code != 0 {
		t.Errorf("request after the daemon was killed: %q, code %d; want code 0", out, code)
	}
	if out, code := ask("red", red, blue.PrivateIP); code == 0 {
		t.Errorf("a machine of another network was reached after the daemon was killed: %q", out)
	}
}

// bounce kills and restarts the only worker's daemon, and waits until it reports the given machines.
func (y *yard) bounce(machines ...machinesapi.Machine) {
	y.Helper()
	w := y.workers[0]
	w.Settle()
	if err := w.Kill(); err != nil {
		y.Fatal(err)
	}
	if err := w.Start(); err != nil {
		y.Fatal(err)
	}
	eventually(y.T, waitTimeout, "the worker answers", func() error {
		for _, m := range machines {
			if _, err := y.api.Machine(y.Context(), m.App, m.ID); err != nil {
				return err
			}
		}
		return nil
	})
}
