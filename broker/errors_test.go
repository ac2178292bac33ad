package broker_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestClientReconstructsErrors checks that the client reconstructs the server's error for each
// code, for a create and for a verb.
func TestClientReconstructsErrors(t *testing.T) {
	for _, code := range bourse.Codes() {
		s := start(t)
		m := s.machine(t, "w1", "web", bourse.StateStarted)
		client := s.client(t)
		had := bourse.Errorf(code, "what went wrong")

		t.Run("verb "+string(code), func(t *testing.T) {
			s.workers["w1"].set(func(call string) error {
				if call == "machine/stop" {
					return had
				}
				return nil
			})
			want := "what went wrong"
			if code == bourse.CodeNotFound {
				want = "machine not found" // all missing machines have the same message
			}
			check(t, client.Stop(t.Context(), "shop", m.ID, machinesapi.StopMachine{}, ""), code, want)
		})
		t.Run("create "+string(code), func(t *testing.T) {
			s.placeErr = had
			id := bourse.NewOrderID().In(m.AppID)
			_, err := client.Create(t.Context(), "shop", machinesapi.CreateMachine{Config: &bourse.Config{
				Image: "host", Init: bourse.Init{Exec: []string{"true"}},
			}}, id)
			check(t, err, code, "what went wrong")
			if reply, ok := errors.AsType[*machinesapi.ReplyError](err); !ok || reply.OrderID != id {
				t.Errorf("the reply was %+v, want order %s", reply, id)
			}
		})
	}
}

func check(t *testing.T, err error, code bourse.Code, text string) {
	t.Helper()
	if bourse.CodeOf(err) != code || bourse.MessageOf(err) != text {
		t.Errorf("got %s %q, want %s %q", bourse.CodeOf(err), bourse.MessageOf(err), code, text)
	}
	reply, ok := errors.AsType[*machinesapi.ReplyError](err)
	if !ok || reply.RequestID == "" {
		t.Errorf("no request id in %v", err)
	}
}

// TestEveryCodeHasItsStatus checks the status of every code. A failure that may have had an effect must not have a
// status after which clients retry automatically.
func TestEveryCodeHasItsStatus(t *testing.T) {
	for _, code := range bourse.Codes() {
		status := code.Status()
		if status < 400 || (status == 500) != (code == bourse.CodeInternal) {
			t.Errorf("%s has status %d", code, status)
		}
		if (status == http.StatusBadGateway || status == http.StatusServiceUnavailable) != (code == bourse.CodeUnavailable) {
			t.Errorf("%s has status %d, which clients retry", code, status)
		}
	}
}
