package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) printViewHealth(h *machinesapi.ViewHealth) error {
	width, _ := s.Out.size()
	t := newTable("MEMBER", "ROLE", "REGION", "STATE", "BEHIND", "LAG", "QUEUED", "REFUSED", "ROWS", "VERSION").
		numbers(4, 5, 6, 7, 8).narrow(9, 0)
	for i := range h.Members {
		t.row(healthRow(&h.Members[i])...)
	}
	if err := t.write(s.Out, width); err != nil {
		return err
	}
	for _, section := range []func(*machinesapi.ViewHealth, io.Writer, int) error{printErrors, printDifferences, s.printQuarantine} {
		if err := section(h, s.Out, width); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(s.Out, "\n%s\n", strings.Join(summaryOf(h), "\n"))
	return err
}

func healthRow(m *machinesapi.MemberHealth) []string {
	if !m.Reachable {
		return []string{string(m.ID), string(m.Role), dash(string(m.Region)), string(m.State), "-", "-", "-", "-", "-", "-"}
	}
	lag := "-"
	if m.LagMS > 0 {
		lag = took(time.Duration(m.LagMS) * time.Millisecond)
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
		string(m.ID), string(m.Role), dash(string(m.Region)), string(m.State), fmt.Sprint(m.Behind), lag,
		queued, fmt.Sprint(m.Quarantine.Rows), fmt.Sprint(rows), dash(m.Version),
	}
}

// printErrors says why members do not answer, and what else is wrong there.
func printErrors(h *machinesapi.ViewHealth, w io.Writer, width int) error {
	t := newTable("MEMBER", "ERROR").narrow(1)
	for i := range h.Members {
		if m := &h.Members[i]; m.Error != "" {
			t.row(string(m.ID), m.Error)
		}
	}
	return below(t, w, width)
}

// printDifferences shows each table that members have differently: who has
// which.
func printDifferences(h *machinesapi.ViewHealth, w io.Writer, width int) error {
	differ := map[string]bool{}
	for i := range h.Members {
		for _, name := range h.Members[i].Differs {
			differ[name] = true
		}
	}
	t := newTable("TABLE", "CHECKSUM", "ROWS", "MEMBERS").numbers(2).narrow(3)
	for _, name := range sortedKeys(differ) {
		versions := map[machinesapi.ViewTable][]string{}
		var order []machinesapi.ViewTable
		for i := range h.Members {
			m := &h.Members[i]
			if m.State != machinesapi.ViewOK && m.State != machinesapi.ViewDiffers {
				continue // it lacks changes: its checksum says nothing
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
			t.row(v.Name, v.Checksum, fmt.Sprint(v.Rows), strings.Join(versions[v], ", "))
		}
	}
	return below(t, w, width)
}

// printQuarantine shows the rows that were refused, each with its origin and
// with who refused it.
func (s *shell) printQuarantine(h *machinesapi.ViewHealth, w io.Writer, width int) error {
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
	t := newTable("REFUSED ROW", "WRITTEN BY", "WHEN", "REASON", "REFUSED BY").narrow(4, 3, 0)
	for _, r := range all {
		when := "-"
		if !r.row.Since.IsZero() {
			when = age(s.Now().Sub(r.row.Since)) + " ago"
		}
		t.row(r.row.Table+" "+r.row.Key, fmt.Sprintf("%s (epoch %d, %d)", r.row.Site, r.row.Epoch, r.row.Seq), when, r.row.Reason, strings.Join(r.by, ", "))
	}
	return below(t, w, width)
}

// below writes a table under another one, unless it is empty.
func below(t *table, w io.Writer, width int) error {
	if len(t.rows) == 0 {
		return nil
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	return t.write(w, width)
}

// summaryOf says in a few lines whether all is well, and who is not.
func summaryOf(h *machinesapi.ViewHealth) []string {
	if len(h.Members) == 0 {
		return []string{"no members"}
	}
	var lines []string
	if h.Agrees {
		lines = append(lines, agreeing(len(h.Members)))
	}
	for i := range h.Members {
		m := &h.Members[i]
		name := clean(string(m.ID))
		switch m.State {
		case machinesapi.ViewUnreachable:
			lines = append(lines, name+" cannot be reached")
		case machinesapi.ViewDiffers:
			lines = append(lines, name+" differs in "+clean(strings.Join(m.Differs, ", ")))
		case machinesapi.ViewBehind:
			lines = append(lines, fmt.Sprintf("%s is %s behind, for %s", name, count(int64(m.Behind), "transaction"), took(time.Duration(m.LagMS)*time.Millisecond)))
		case machinesapi.ViewCatchingUp:
			lines = append(lines, fmt.Sprintf("%s has %s on the way", name, count(int64(m.Behind), "transaction")))
		case machinesapi.ViewOK:
		}
		if n := m.Quarantine.Rows; n > 0 {
			lines = append(lines, fmt.Sprintf("%s has refused %s", name, count(n, "row")))
		}
	}
	return lines
}

func agreeing(n int) string {
	if n == 1 {
		return "1 member, and nobody to compare it with"
	}
	return fmt.Sprintf("%d members agree", n)
}
