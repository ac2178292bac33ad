package cluster

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func printHealth(s *cli.Shell, h *machinesapi.ViewHealth) error {
	t := cli.NewTable("MEMBER", "ROLE", "REGION", "STATE", "BEHIND", "LAG", "QUEUED", "REFUSED", "ROWS", "VERSION").
		Numbers(4, 5, 6, 7, 8).Narrow(9, 0)
	for i := range h.Members {
		t.Row(healthRow(&h.Members[i])...)
	}
	if err := t.Write(s.Out); err != nil {
		return err
	}
	for _, t := range []*cli.Table{errorTable(h), differenceTable(h), quarantineTable(h, s.Now())} {
		if err := printBelow(t, s.Out); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(s.Out, "\n%s\n", strings.Join(summaryOf(h, s.Now()), "\n"))
	return err
}

func healthRow(m *machinesapi.MemberHealth) []string {
	if !m.Reachable {
		return []string{string(m.ID), string(m.Role), cmp.Or(string(m.Region), "-"), viewState(m), "-", "-", "-", "-", "-", "-"}
	}
	lag := "-"
	if m.LagMS > 0 {
		lag = cli.Took(time.Duration(m.LagMS) * time.Millisecond)
	}
	queued := fmt.Sprint(m.Queue.Transactions)
	if m.Queue.Dropped > 0 {
		queued += fmt.Sprintf(" (%d dropped)", m.Queue.Dropped)
	}
	var rows int64
	for _, t := range m.Tables {
		rows += t.Rows
	}
	return []string{
		string(m.ID), string(m.Role), cmp.Or(string(m.Region), "-"), string(m.State), fmt.Sprint(m.Behind), lag,
		queued, fmt.Sprint(m.Quarantine.Rows), fmt.Sprint(rows), cmp.Or(m.Version, "-"),
	}
}

// viewState formats a member's state, in upper case if the member is down.
func viewState(m *machinesapi.MemberHealth) string {
	if m.State == machinesapi.ViewDown {
		return "DOWN"
	}
	return string(m.State)
}

// errorTable lists the members that reported an error.
func errorTable(h *machinesapi.ViewHealth) *cli.Table {
	t := cli.NewTable("MEMBER", "ERROR").Narrow(1)
	for i := range h.Members {
		if m := &h.Members[i]; m.Error != "" {
			t.Row(string(m.ID), m.Error)
		}
	}
	return t
}

// differenceTable lists the tables whose contents differ between members. Each row shows one
// version of a table and the members that have it.
func differenceTable(h *machinesapi.ViewHealth) *cli.Table {
	differ := map[string]bool{}
	for i := range h.Members {
		for _, name := range h.Members[i].Differs {
			differ[name] = true
		}
	}
	t := cli.NewTable("TABLE", "CHECKSUM", "ROWS", "MEMBERS").Numbers(2).Narrow(3)
	for _, name := range slices.Sorted(maps.Keys(differ)) {
		versions := map[machinesapi.ViewTable][]string{}
		var order []machinesapi.ViewTable
		for i := range h.Members {
			m := &h.Members[i]
			if m.State != machinesapi.ViewOK && m.State != machinesapi.ViewDiffers {
				continue // a member that lacks changes is expected to have a different checksum
			}
			for _, v := range m.Tables {
				if v.Name != name {
					continue
				}
				if versions[v] == nil {
					order = append(order, v)
				}
				versions[v] = append(versions[v], string(m.ID))
			}
		}
		slices.SortStableFunc(order, func(a, b machinesapi.ViewTable) int { return len(versions[b]) - len(versions[a]) })
		for _, v := range order {
			t.Row(v.Name, v.Checksum, fmt.Sprint(v.Rows), strings.Join(versions[v], ", "))
		}
	}
	return t
}

// quarantineTable lists the newest quarantined rows with their origin and the members that
// refused them.
func quarantineTable(h *machinesapi.ViewHealth, now time.Time) *cli.Table {
	type refused struct {
		row machinesapi.QuarantinedRow
		by  []string
	}
	var all []*refused
	for i := range h.Members {
		m := &h.Members[i]
	next:
		for _, q := range m.Quarantine.Newest {
			for _, r := range all {
				if r.row.Site == q.Site && r.row.Epoch == q.Epoch && r.row.Seq == q.Seq && r.row.Table == q.Table && r.row.Key == q.Key {
					r.by = append(r.by, string(m.ID))
					continue next
				}
			}
			all = append(all, &refused{q, []string{string(m.ID)}})
		}
	}
	t := cli.NewTable("REFUSED ROW", "WRITTEN BY", "WHEN", "REASON", "REFUSED BY").Narrow(4, 3, 0)
	for _, r := range all {
		when := "-"
		if !r.row.Since.IsZero() {
			when = cli.Age(now.Sub(r.row.Since)) + " ago"
		}
		t.Row(r.row.Table+" "+r.row.Key, fmt.Sprintf("%s (epoch %d, %d)", r.row.Site, r.row.Epoch, r.row.Seq), when, r.row.Reason, strings.Join(r.by, ", "))
	}
	return t
}

// printBelow writes a table preceded by an empty line. It writes nothing if the table is empty.
func printBelow(t *cli.Table, w cli.Stream) error {
	if t.Empty() {
		return nil
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	return t.Write(w)
}

// summaryOf returns lines that report whether the members agree, and each member's problem.
func summaryOf(h *machinesapi.ViewHealth, now time.Time) []string {
	if len(h.Members) == 0 {
		return []string{"no members"}
	}
	var lines []string
	if n := agreeingMembers(h); n > 0 {
		lines = append(lines, agreeing(n))
	}
	for i := range h.Members {
		m := &h.Members[i]
		name := cli.Clean(string(m.ID))
		switch m.State {
		case machinesapi.ViewDown:
			lines = append(lines, name+" is DOWN since "+cli.Clock(m.DownSince, now)+"; if it will not come back: bourse member remove "+name)
		case machinesapi.ViewUnreachable:
			lines = append(lines, name+" is unreachable")
		case machinesapi.ViewDiffers:
			lines = append(lines, name+" differs in "+cli.Clean(strings.Join(m.Differs, ", ")))
		case machinesapi.ViewBehind:
			lines = append(lines, fmt.Sprintf("%s is %s behind, for %s", name, cli.Count(int64(m.Behind), "transaction"), cli.Took(time.Duration(m.LagMS)*time.Millisecond)))
		case machinesapi.ViewCatchingUp:
			lines = append(lines, fmt.Sprintf("%s is still receiving %s", name, cli.Count(int64(m.Behind), "transaction")))
		case machinesapi.ViewOK:
		}
		if n := m.Quarantine.Rows; n > 0 {
			lines = append(lines, fmt.Sprintf("%s has refused %s", name, cli.Count(n, "row")))
		}
	}
	return lines
}

// agreeingMembers returns the number of running members if all of them agree. Otherwise it
// returns 0.
func agreeingMembers(h *machinesapi.ViewHealth) int {
	n := 0
	for i := range h.Members {
		switch h.Members[i].State {
		case machinesapi.ViewOK, machinesapi.ViewCatchingUp:
			n++
		case machinesapi.ViewBehind, machinesapi.ViewDiffers, machinesapi.ViewUnreachable:
			return 0
		case machinesapi.ViewDown:
		}
	}
	return n
}

func agreeing(n int) string {
	if n == 1 {
		return "1 member, nothing to compare it with"
	}
	return fmt.Sprintf("%d members agree", n)
}
