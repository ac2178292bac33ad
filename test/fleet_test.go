package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// newWorker returns a worker in a region, which is not started yet, and its data directory.
// Orders can require the worker by the label host.
func newWorker(t *testing.T, name, region string, more ...string) (s *server, data string) {
	t.Helper()
	data = filepath.Join(t.TempDir(), name)
	return newServer(t, name, append([]string{
		"serve", "worker", "--name", name, "--region", region, "--data", data, "--label", "host=" + name,
		"--cpus", "1000", "--memory", "1TiB", "--disk", "1TiB", "--ephemeral",
	}, more...)...), data
}

// eventually calls ask until it returns no error, and returns how long that took. It fails
// the test at the time limit.
func eventually(t *testing.T, limit time.Duration, what string, ask func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	var err error
	for time.Since(begin) < limit {
		if err = ask(); err == nil {
			return time.Since(begin)
		}
		pause(t.Context(), 10*time.Millisecond)
	}
	t.Fatalf("%s: timed out after %v: %v", what, limit, err)
	return 0
}

// sleeper returns an order for a machine that runs until it is stopped. The machine's
// command line contains mark.
func sleeper(region, mark string) machinesapi.CreateMachine {
	return machinesapi.CreateMachine{Region: region, Config: &bourse.Config{
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 16}, Restart: &bourse.Restart{Policy: bourse.RestartNo},
		Init: bourse.Init{Exec: []string{"/bin/sh", "-c", "sleep 1000; : " + mark}},
	}}
}

// on makes an order require a worker.
func on(worker string, order machinesapi.CreateMachine) machinesapi.CreateMachine {
	order.Config.Requirements = bourse.Requirements{"host": {Label: worker}}
	return order
}

// create places an order that must be filled.
func create(t *testing.T, api *machinesapi.Client, order machinesapi.CreateMachine) machinesapi.Machine {
	t.Helper()
	m, err := api.Create(t.Context(), app, order, "")
	if err != nil {
		t.Fatalf("order for region %q, %v: %v", order.Region, order.Config.Requirements, err)
	}
	return m.Machine
}

// summary contains the properties of a machine on which all sources must agree.
type summary struct {
	Worker   bourse.WorkerID
	State    bourse.State
	Instance bourse.InstanceID
	Order    bourse.OrderID
	PID      int
	Host     machinesapi.HostStatus
}

func summaryOf(m *machinesapi.Machine) summary {
	return summary{Worker: m.Worker, State: m.State, Instance: m.InstanceID, Order: m.OrderID, PID: m.PID, Host: m.HostStatus}
}

type machines = map[bourse.MachineID]summary

// listed returns a broker's machine list.
func listed(ctx context.Context, api *machinesapi.Client) (machines, error) {
	list, silent, err := api.Machines(ctx, app, machinesapi.ListMachines{})
	if err == nil && len(silent) > 0 {
		err = fmt.Errorf("workers %v did not answer", silent)
	}
	out := machines{}
	for i := range list {
		out[list[i].ID] = summaryOf(&list[i])
	}
	return out, err
}

// selected returns the machines in a broker's view, read with SQL.
func selected(ctx context.Context, api *machinesapi.Client) (machines, error) {
	rows, err := query(ctx, api, `SELECT id, worker, state, instance_id, order_id, pid, host_status FROM machines WHERE app = ?`, string(app))
	out := machines{}
	for _, r := range rows {
		m := summary{
			Worker: bourse.WorkerID(r[1]), State: bourse.State(r[2]), Instance: bourse.InstanceID(r[3]),
			Order: bourse.OrderID(r[4]), Host: machinesapi.HostStatus(r[6]),
		}
		_, _ = fmt.Sscan(r[5], &m.PID) // a NULL becomes 0
		out[bourse.MachineID(r[0])] = m
	}
	return out, err
}

// query runs an SQL query on a broker's view. It returns the cells as text.
func query(ctx context.Context, api *machinesapi.Client, statement string, params ...any) ([][]string, error) {
	var rows [][]string
	for line, err := range api.Query(ctx, machinesapi.ViewQuery{Statement: statement, Params: params}) {
		if err != nil {
			return nil, err
		}
		if line.Row == nil {
			continue
		}
		row := make([]string, len(line.Row.Cells))
		for i, c := range line.Row.Cells {
			row[i] = fmt.Sprint(c)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// emptyQuery is an encoded query without a filter, as part of a URL.
const emptyQuery = "oA"

// owned returns the machines that the workers report themselves. No broker is involved.
func owned(t *testing.T, workers ...*server) machines {
	t.Helper()
	out := machines{}
	for _, w := range workers {
		resp, err := w.HTTP(t).Get("http://" + w.API + fabric.MachineList.Path() + "?" + emptyQuery)
		if err != nil {
			t.Fatalf("list the machines of %s: %v", w.Name, err)
		}
		var list []bourse.Machine
		body, err := io.ReadAll(resp.Body)
		err = errors.Join(err, codec.Unmarshal(body, &list))
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("list the machines of %s: status %s, %v; want 200", w.Name, resp.Status, err)
		}
		for i := range list {
			m := machinesapi.FromMachine(&list[i])
			out[m.ID] = summaryOf(&m)
			if m.Worker != bourse.WorkerID(w.Name) {
				t.Errorf("%s reports machine %s of worker %s, want only its own machines", w.Name, m.ID, m.Worker)
			}
		}
	}
	return out
}

// hosts checks that the lists and the SQL of every broker show exactly the machines in
// want, and that their hosts have the given status.
func hosts(ctx context.Context, want map[bourse.MachineID]machinesapi.HostStatus, brokers ...*machinesapi.Client) error {
	for _, api := range brokers {
		for name, ask := range map[string]func(context.Context, *machinesapi.Client) (machines, error){"list": listed, "SQL": selected} {
			all, err := ask(ctx, api)
			if err != nil {
				return fmt.Errorf("%s of %s: %w", name, api.BaseURL, err)
			}
			got := map[bourse.MachineID]machinesapi.HostStatus{}
			for id, m := range all {
				got[id] = m.Host
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("hosts according to the %s of %s (-want +got):\n%s", name, api.BaseURL, diff)
			}
		}
	}
	return nil
}

// converged waits until all views are identical, and every broker shows exactly the
// machines that the workers report, both in lists and with SQL.
func converged(t *testing.T, members int, brokers []*machinesapi.Client, workers ...*server) machines {
	t.Helper()
	var want machines
	took := eventually(t, waitTimeout, "the views converge", func() error {
		if err := servertest.Agreed(t.Context(), members, brokers...); err != nil {
			return err
		}
		want = owned(t, workers...)
		for id, m := range want {
			m.Host = machinesapi.HostOK
			want[id] = m
		}
		for _, api := range brokers {
			list, err := listed(t.Context(), api)
			if err != nil {
				return err
			}
			rows, err := selected(t.Context(), api)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(want, list) + cmp.Diff(want, rows); diff != "" {
				return fmt.Errorf("%s does not list the machines that the workers report (-want +got):\n%s", api.BaseURL, diff)
			}
		}
		return nil
	})
	t.Logf("converged after %v: %d members, %d machines", took.Round(time.Millisecond), members, len(want))
	return want
}

// kept checks that every machine in a reply to a caller exists unchanged.
func kept(t *testing.T, promised []machinesapi.Machine, have machines) {
	t.Helper()
	for i := range promised {
		want := summaryOf(&promised[i])
		want.Host = machinesapi.HostOK
		if diff := cmp.Diff(want, have[promised[i].ID]); diff != "" {
			t.Errorf("machine %s differs from the reply to its caller (-want +got):\n%s", promised[i].ID, diff)
		}
	}
}

func ids(m machines) []bourse.MachineID { return slices.Sorted(maps.Keys(m)) }
