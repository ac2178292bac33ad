package machine

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/cli/place"
)

func TestOrderShow(t *testing.T) {
	d := clitest.Decision()
	got := line.Against(t, clitest.Replies(http.StatusOK, d), "order", "show", string(d.Order))
	if got.Code != 0 || got.Err != "" {
		t.Fatalf("exit status %d, stderr %q", got.Code, got.Err)
	}
	clitest.Golden(t, "order_show_wide", got.Out) // without a terminal, nothing is shortened
	screen, narrow := clitest.Buffer("")
	screen.Width = 80
	if err := place.PrintDecision(screen, &d); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "order_show", narrow.String())
}

func TestQuoteWithoutWillingWorker(t *testing.T) {
	d := clitest.RefusedDecision()
	got := line.Against(t, clitest.Replies(http.StatusOK, d), "quote", "host", "--vm-memory", "2GiB", "--", "true")
	if got.Code != 6 {
		t.Errorf("exit status %d, want 6", got.Code)
	}
	clitest.Golden(t, "quote_refused_wide", got.Out+"--- stderr\n"+got.Err)
}

func TestOrderShowWithCachedQuotes(t *testing.T) {
	d := clitest.Decision()
	d.Rounds[0].OldestQuote, d.Rounds[0].Asked, d.Rounds[0].Refusals = 312*time.Millisecond, 0, nil
	screen, out := clitest.Buffer("")
	screen.Width = 80
	if err := place.PrintDecision(screen, &d); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0 of 5 workers: 2 willing, 0 refused\n", "no worker was asked; ranked by answers that were up to 312 ms old, and by later claims\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not contain %q:\n%s", want, out.String())
		}
	}
}

// TestOrderList checks the list of a broker's recent orders.
func TestOrderList(t *testing.T) {
	filled, refused := clitest.Decision(), clitest.RefusedDecision()
	filled.App, filled.Outcome, filled.Worker, filled.Machine, filled.At = "shop", bourse.OutcomeFilled, "gru-2", "148e21ea1d5389", clitest.Now.Add(-time.Minute)
	refused.App, refused.Outcome, refused.At = "a-shop-with-a-rather-long-name", bourse.OutcomeRefused, clitest.Now.Add(-2*time.Hour)
	refused.Message = "insufficient memory available to fulfill request (gru: 2 workers asked)"
	line.Screens(t, "order_list", clitest.Replies(http.StatusOK, []bourse.Decision{filled, refused}), "order", "list")
	if got := line.Against(t, clitest.Replies(http.StatusOK, []bourse.Decision{}), "order", "list", "--json"); got.Out != "[]\n" || got.Code != 0 {
		t.Errorf("no orders: %+v", got)
	}
}
