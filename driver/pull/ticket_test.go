package pull

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestJobBelongsToItsTicket checks that only the ticket that was used to claim a job can end the
// job and keep it alive, even after a restart of the daemon. The ticket itself must not be on the
// disk.
func TestJobBelongsToItsTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		task := taskOf(1, "a")
		r.claimed(task) // with the ticket "me"
		for range 2 {
			for _, ticket := range []Ticket{"you", "", "m", "mee"} {
				r.wantCode("an end with ticket "+string(ticket), r.End("a", Report{Ticket: ticket, Code: 1}), bourse.CodeForbidden)
				r.wantCode("a claim with that ticket", r.Claim("a", Claimer{By: "me", Ticket: ticket}), bourse.CodeConflict)
				begin := time.Now()
				if names, _ := r.Cancellations(t.Context(), ticket, []string{"a"}, 0); len(names) != 1 || time.Since(begin) != 0 {
					t.Errorf("Cancellations for a with ticket %q waited for %s and returned %v", ticket, time.Since(begin), names)
				}
			}
			text, err := os.ReadFile(filepath.Join(r.dir, jobsDir, string(task.ID.Machine)+suffix))
			if plain := base64.StdEncoding.EncodeToString([]byte("me")); err != nil || strings.Contains(string(text), plain) || strings.Contains(string(text), `"ticket":"me"`) {
				t.Errorf("the record contains the ticket: %s, %v", text, err)
			}
			r.open()
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.watchIn(ctx)
		go func() { // calls with another ticket do not count as heartbeats
			again := time.NewTicker(time.Second)
			defer again.Stop()
			for ctx.Err() == nil {
				_, _ = r.Cancellations(ctx, "you", []string{"a"}, 0)
				select {
				case <-again.C:
				case <-ctx.Done():
				}
			}
		}()
		exit, err := r.Wait(t.Context(), task.ID)
		if err != nil || exit.Code != -1 || !strings.Contains(exit.Error, "no heartbeat") {
			t.Errorf("a job for which only another ticket sends heartbeats: got %+v, %v, want it given up", exit, err)
		}
		cancel()
	})
}

// TestHostBelongsToItsTicket checks that a host's name, offers and jobs belong to the ticket that was used to register
// the host. After a restart, the driver knows this ticket only from the host's jobs.
func TestHostBelongsToItsTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		size := Size{CPU: 4000, Memory: 1024}
		r.wantCode("Register", r.Register("h", "mine", size, nil), "")
		got := make(chan Job, 1)
		go func() {
			j, _, _ := r.Next(t.Context(), "h", "mine")
			got <- j
		}()
		synctest.Wait()
		start := r.begin(t.Context(), taskOf(1, "a"))
		<-got
		r.wantCode("a stranger's claim as the host", r.Claim("a", Claimer{By: "h", Host: "h", Ticket: "yours"}), bourse.CodeForbidden)
		r.wantCode("the host's", r.Claim("a", Claimer{By: "h", Host: "h", Ticket: "mine"}), "")
		<-start
		for _, when := range []string{"before", "after a restart"} {
			r.wantCode(when+": a stranger registers it", r.Register("h", "yours", size, []string{}), bourse.CodeForbidden)
			if _, _, err := r.Next(t.Context(), "h", "yours"); err == nil {
				t.Errorf("%s: a caller with another ticket received the host's work", when)
			}
			r.wantCode(when+": a stranger ends its job", r.End("a", Report{Ticket: "yours"}), bourse.CodeForbidden)
			r.open()
		}
		r.wantCode("it registers again", r.Register("h", "mine", size, []string{"a"}), "")
		r.wantCode("End", r.End("a", Report{Ticket: "mine"}), "")
	})
}

// TestJobWithoutTicket checks that no ticket can end a job that was recorded by a release that did not store tickets.
func TestJobWithoutTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		task := taskOf(1, "a")
		text := `{"form":1,"id":{"Machine":"` + string(task.ID.Machine) + `","Boot":1},"name":"a","by":"me","size":{},"started_at":"2026-01-01T00:00:00Z"}`
		if err := os.WriteFile(filepath.Join(r.dir, jobsDir, string(task.ID.Machine)+suffix), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if held := r.open(); len(held) != 1 {
			t.Fatalf("recovered %+v, want the job", held)
		}
		for _, ticket := range []Ticket{"", "me"} {
			r.wantCode("End", r.End("a", Report{Ticket: ticket}), bourse.CodeForbidden)
		}
		r.wantCode("Destroy", r.Destroy(t.Context(), task.ID.Machine), "")
	})
}
