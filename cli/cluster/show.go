package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newShow(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:               "show WORKER",
		Aliases:           []string{"status"},
		Short:             "Show a worker's capacity, labels and machines, and its connections to other workers",
		Example:           "  bourse worker show gru-1",
		Args:              cli.Exactly(1),
		ValidArgsFunction: complete(s),
		RunE: func(c *cobra.Command, args []string) error {
			w, err := s.Client().Worker(c.Context(), bourse.WorkerID(args[0]))
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return cli.Hint(err, "bourse worker list")
			}
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(w)
			}
			return printWorker(s, &w)
		},
	}
}

func printWorker(s *cli.Shell, w *machinesapi.Worker) error {
	var f cli.Facts
	f.Add("worker", string(w.ID))
	f.Add("region", string(w.Region))
	f.Add("status", statusOf(w, s.Now()))
	f.Add("error", w.Error)
	f.Add("address", addressOf(w))
	f.Add("tag", w.Tag)
	if w.Facts != nil {
		f.Add("cordoned", cordonOf(w.Facts.Cordon, s.Now()))
		f.Add("version", w.Facts.Version)
		f.Add("drivers", strings.Join(w.Facts.Drivers, ", "))
		f.Add("load", fmt.Sprintf("%.2f per core", w.Facts.Load))
		f.Add("machines", cli.States(w.Facts.Machines))
		f.Add("mesh", meshOf(w.Facts.Mesh))
		for _, name := range slices.Sorted(maps.Keys(w.Facts.Labels)) {
			f.Add("label", name+"="+w.Facts.Labels[name])
		}
	}
	if !w.Since.IsZero() {
		f.Add("machines", fmt.Sprint(w.Machines))
		f.Add("volumes", fmt.Sprint(w.Volumes))
	}
	if err := f.Write(s.Out); err != nil || w.Facts == nil {
		return err
	}
	fmt.Fprintln(s.Out)
	if err := accountTable(w.Facts.Accounts).Write(s.Out); err != nil || w.Facts.Mesh == nil || len(w.Facts.Mesh.Peers) == 0 {
		return err
	}
	fmt.Fprintln(s.Out)
	return peerTable(w.Facts.Mesh.Peers, s.Now()).Write(s.Out)
}

// meshOf describes how other workers reach a worker's mesh. It returns "" if the worker
// has none.
func meshOf(m *bourse.Mesh) string {
	switch {
	case m == nil:
		return ""
	case !m.Endpoint.IsValid():
		return "connects to other workers, which cannot connect to it"
	}
	return m.Endpoint.String()
}

// peerTable lists a worker's peers in the mesh: the workers whose machines are in the
// same private networks.
func peerTable(peers []bourse.MeshPeer, now time.Time) *cli.Table {
	t := cli.NewTable("PEER", "MACHINES", "HANDSHAKE", "RECEIVED", "SENT", "ADDRESS").Numbers(1, 3, 4)
	for _, p := range peers {
		handshake, address := "never", ""
		if !p.Handshake.IsZero() {
			handshake = cli.Age(now.Sub(p.Handshake)) + " ago"
		}
		if p.Endpoint.IsValid() {
			address = p.Endpoint.String()
		}
		t.Row(string(p.Worker), fmt.Sprint(p.Machines), handshake, cli.Bytes(p.Received), cli.Bytes(p.Sent), address)
	}
	return t
}

// accountTable formats a worker's ledger as a table. If reservations hold capacity, an
// additional column shows how much of the used capacity they hold.
func accountTable(accounts []bourse.Account) *cli.Table {
	if !slices.ContainsFunc(accounts, func(a bourse.Account) bool { return a.Held > 0 }) {
		t := cli.NewTable("RESOURCE", "TOTAL", "USED", "FREE").Numbers(1, 2, 3)
		for _, a := range accounts {
			r := string(a.Resource)
			t.Row(r, cli.Amount(r, a.Total), cli.Amount(r, a.Used), cli.Amount(r, a.Free()))
		}
		return t
	}
	t := cli.NewTable("RESOURCE", "TOTAL", "USED", "(HELD)", "FREE").Numbers(1, 2, 3, 4)
	for _, a := range accounts {
		r := string(a.Resource)
		t.Row(r, cli.Amount(r, a.Total), cli.Amount(r, a.Used), cli.Amount(r, a.Held), cli.Amount(r, a.Free()))
	}
	return t
}
