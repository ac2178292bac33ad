package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestAppCreatedInBothHalves has two organizations create an app with the same name in the two halves of a partitioned
// network. Afterwards all brokers must agree that the app that was created first owns the name. Neither organization
// may read, list or stop machines of the other. An unrestricted token must find the machines of the other app, and must
// be able to destroy them by id.
func TestAppCreatedInBothHalves(t *testing.T) {
	t.Parallel()
	lan := newLAN(t)
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("acme-acme-acme-acme-acme acme\nother-other-other-other other\nall-all-all-all-all-all *\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var brokers, workers []*server
	var join string
	place := func(s *server, h *host) *server {
		s.Launch, s.Dial = h.launch, h.dial
		s.Args = append(s.Args, "--insecure", "--listen", h.addr.String()+":4280", "--gossip", h.addr.String()+":7946", "--join", join)
		return s
	}
	hosts := []*host{lan.host(1), lan.host(2)}
	join = fmt.Sprintf("%s:7946,%s:7946", hosts[0].addr, hosts[1].addr)
	for i, h := range hosts {
		name := fmt.Sprint("b", i)
		brokers = append(brokers, place(newServer(t, name, "serve", "broker", "--name", name, "--credentials", filepath.Dir(tokens)), h))
		for n := range 2 { // an app needs two other members that store it
			w, _ := newWorker(t, fmt.Sprintf("w%d%d", i, n), []string{"gru", "ams"}[i], "--allow-host")
			workers = append(workers, place(w, lan.host(i+1)))
		}
	}
	startAll(t, append(workers, brokers...)...)
	as := func(broker int, token string) *machinesapi.Client {
		c := client(t, brokers[broker])
		c.Token = token
		return c
	}
	const acme, other, all = "acme-acme-acme-acme-acme", "other-other-other-other", "all-all-all-all-all-all"
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 6, as(0, all), as(1, all)) })

	lan.cut()
	mark := markOf(t)
	var made []machinesapi.App
	var machines []machinesapi.CreatedMachine
	for i, token := range []string{acme, other} {
		api, org := as(i, token), []string{"acme", "other"}[i]
		var m machinesapi.CreatedMachine
		eventually(t, waitTimeout, "an app is created in each half", func() error {
			a, err := api.CreateApp(t.Context(), machinesapi.CreateApp{Name: "shop", Org: org})
			if err == nil {
				made = append(made, a)
			}
			return err
		})
		in := sleeper([]string{"gru", "ams"}[i], mark)
		in.Config.Env = map[string]string{"SECRET": org}
		eventually(t, waitTimeout, "a machine is created in each half", func() (err error) {
			m, err = api.Create(t.Context(), "shop", in, "")
			return err
		})
		machines = append(machines, m)
	}
	if made[0].ID == made[1].ID {
		t.Fatal("both halves created the same app, so the network was not partitioned")
	}

	lan.heal()
	eventually(t, waitTimeout, "all brokers agree on the app that was created first", func() error {
		if err := servertest.Agreed(t.Context(), 6, as(0, all), as(1, all)); err != nil {
			return err
		}
		for i := range brokers {
			got, err := as(i, all).App(t.Context(), "shop")
			if err != nil || got.ID != made[0].ID || got.Organization.Slug != "acme" {
				return fmt.Errorf("at %s the app is %+v, %w; want the app of acme", brokers[i].Name, got, err)
			}
		}
		return nil
	})
	for i := range brokers {
		if m, err := as(i, acme).Machine(t.Context(), "shop", machines[0].ID); err != nil || m.Config.Env["SECRET"] != "acme" {
			t.Errorf("the owner's machine at %s has the environment %v, %v; want SECRET=acme", brokers[i].Name, m.Config.Env, err)
		}
		list, _, err := as(i, acme).Machines(t.Context(), "shop", machinesapi.ListMachines{})
		if err != nil || len(list) != 1 || list[0].ID != machines[0].ID {
			t.Errorf("the owner's list at %s: %+v, %v; want only machine %s", brokers[i].Name, list, err, machines[0].ID)
		}
		for _, x := range []struct {
			token string
			of    bourse.MachineID
		}{{acme, machines[1].ID}, {other, machines[0].ID}, {other, machines[1].ID}} {
			api := as(i, x.token)
			_, err := api.Machine(t.Context(), "shop", x.of)
			for _, err := range []error{err, api.Destroy(t.Context(), "shop", x.of, machinesapi.DestroyMachine{Force: true}, "")} {
				if code := bourse.CodeOf(err); err == nil || code != bourse.CodeNotFound && code != bourse.CodeForbidden {
					t.Errorf("%s at %s with machine %s: %v, want not found or forbidden", x.token, brokers[i].Name, x.of, err)
				}
			}
		}
		if list, _, err := as(i, other).Machines(t.Context(), "shop", machinesapi.ListMachines{}); err == nil && len(list) > 0 {
			t.Errorf("the other organization lists %+v at %s, want no machines", list, brokers[i].Name)
		}
	}
	if n := len(pidsOf(t, mark)); n != 2 {
		t.Errorf("%d processes run, want 2, one for each machine", n)
	}
	// No organization owns the machine anymore. An operator finds and destroys it.
	rows, err := query(t.Context(), as(0, all), "SELECT id FROM machines WHERE app_id NOT IN (SELECT id FROM apps)")
	if err != nil || len(rows) != 1 || fmt.Sprint(rows[0][0]) != string(machines[1].ID) {
		t.Errorf("machines that belong to no app: %v, %v; want %s", rows, err, machines[1].ID)
	}
	if err := as(0, all).Destroy(t.Context(), "shop", machines[1].ID, machinesapi.DestroyMachine{Force: true}, ""); err != nil {
		t.Errorf("destroy by an operator: %v", err)
	}
	eventually(t, waitTimeout, "the machine is destroyed, and the owner's machine still runs", func() error {
		if pids := pidsOf(t, mark); len(pids) != 1 {
			return fmt.Errorf("processes %v, want one", pids)
		}
		return nil
	})
}
