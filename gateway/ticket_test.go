package gateway_test

import (
	"strings"
	"testing"
)

const (
	header = "Bourse-Ticket"
	other  = "fedcba9876543210fedcba9876543210"
)

// TestAPollerEndsOnlyItsOwn checks that a poller cannot end, keep alive, take over or read a job that another poller
// with the same token has claimed.
func TestAPollerEndsOnlyItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		jobs := r.later("GET", "jobs", "")
		submitted := r.later("POST", "submit", `{"name": "a", "command": "true", "env": {"SECRET": "canary"}}`)
		r.want("jobs", <-jobs, 200, "canary")
		made := r.call("POST", "claim/a?by=me", "", header, "").json(t)["ticket"]
		mine, ok := made.(string)
		if !ok || len(mine) < 26 {
			t.Fatalf("the reply to the claim contains the ticket %v, want 128 bits", made)
		}
		r.want("submit", <-submitted, 200)
		for _, ticket := range []string{other, "", mine[1:], "Basic " + mine} {
			for _, path := range []string{"release/a", "release/a?exit_code=0", "stopped/a"} {
				r.want(path+" with another ticket", r.call("POST", path, `{"exit_code": 0}`, header, ticket), 403)
			}
			for _, a := range []answer{
				r.call("GET", "jobs?wait=0s", "", header, ticket), r.call("GET", "status/a", "", header, ticket),
				r.call("GET", "cancellations?job=a", "", header, ticket),
			} {
				if strings.Contains(a.text, "canary") || strings.Contains(a.text, mine) {
					t.Errorf("with another ticket the answer is %s", a.text)
				}
			}
		}
		r.want("its claim", r.call("POST", "claim/a?by=me", "", header, other), 409)
		r.want("a ticket that can be guessed", r.call("POST", "claim/a?by=me", "", header, "1234"), 400)
		r.want("its own claim again", r.call("POST", "claim/a?by=me", "", header, mine), 200)
		r.want("its own watch", r.call("GET", "cancellations?job=a&wait=1s", "", header, mine), 204)
		r.want("its own end", r.call("POST", "release/a", `{"exit_code": 0}`, header, mine), 200)
		r.settled("a")
	})
}

// TestAClientCancelsOnlyItsOwn checks that a poller with the gateway's token cannot act as
// a client to cancel another client's job or read its output.
func TestAClientCancelsOnlyItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.run("a")
		for _, ticket := range []string{other, ""} {
			r.want("cancel with another ticket", r.call("POST", "cancel/a", "", header, ticket), 403)
		}
		r.want("release", r.call("POST", "release/a", `{"exit_code": 0, "output": "canary"}`), 200)
		r.settled("a")
		r.want("status", r.call("GET", "status/a", ""), 200, "canary")
		if a := r.call("GET", "status/a", "", header, other); a.status != 200 || strings.Contains(a.text, "canary") {
			t.Errorf("status with another ticket: %d %s, want it without the output", a.status, a.text)
		}
		r.want("cancel with the ticket", r.call("POST", "cancel/a", ""), 200)
	})
}
