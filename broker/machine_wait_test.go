package broker_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestWaitThatEndsImmediately(t *testing.T) {
	for _, c := range []struct {
		name, query string
		state       bourse.State
		status      int
		text        string
	}{
		{"started is the default", "", bourse.StateStarted, 200, ""},
		{"a comma list", "?state=stopped,started", bourse.StateStarted, 200, ""},
		{"a repeated parameter", "?state=stopped&state=started", bourse.StateStarted, 200, ""},
		{"settled", "?state=settled", bourse.StateStopped, 200, ""},
		{"failed", "?state=failed", bourse.StateFailed, 200, ""},
		{"destroyed", "?state=destroyed", bourse.StateDestroyed, 200, ""},
		{"destroyed while started is wanted", "?state=started", bourse.StateDestroyed, 404, "not_found: machine not found"},
		{"another version", "?state=started&version=01J00000000000000000000000", bourse.StateStarted, 412, "currently replaced"},
		{"another version by its old name", "?instance_id=01J00000000000000000000000", bourse.StateStarted, 412, "currently replaced"},
		{"an unknown state", "?state=started,flying", bourse.StateStarted, 400, "invalid state"},
		{"a transient state", "?state=starting", bourse.StateStarted, 400, "invalid state"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t)
			m := s.machine(t, "w1", "web", c.state)
			rec := s.call(t, "GET", "/v1/apps/shop/machines/"+string(m.ID)+"/wait"+c.query, "")
			if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.text) {
				t.Fatalf("status %d: %s; want %d %q", rec.Code, rec.Body, c.status, c.text)
			}
			if c.status != 200 {
				return
			}
			got := decodeBody[machinesapi.WaitReply](t, rec.Body.Bytes())
			if !got.OK || got.State != c.state || got.Version != m.Instance || got.EventID != m.LastEvents[0].ID {
				t.Errorf("reply %+v", got)
			}
		})
	}
}

// TestWaitKeepsTheRequestOpen checks that a wait keeps the request open for the whole timeout, because clients that get
// an earlier response retry immediately.
func TestWaitKeepsTheRequestOpen(t *testing.T) {
	for query, want := range map[string]time.Duration{
		"?state=stopped":               60 * time.Second,
		"?state=stopped&timeout=5":     5 * time.Second,
		"?state=stopped&timeout=1m":    60 * time.Second,
		"?state=stopped&timeout=90000": 60 * time.Second,
		"?state=stopped&timeout=250ms": 250 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t)
			m := s.machine(t, "w1", "web", bourse.StateStarted)
			began := time.Now()
			rec := s.call(t, "GET", "/v1/apps/shop/machines/"+string(m.ID)+"/wait"+query, "")
			got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
			if text := "deadline_exceeded: machine failed to reach desired state, stopped, currently started"; rec.Code != 408 || got.Error != text {
				t.Errorf("%s: status %d, body %+v; want %q", query, rec.Code, got, text)
			}
			if took := time.Since(began); took != want {
				t.Errorf("%s: answered after %s, want %s", query, took, want)
			}
		})
	}
}

func TestWaitSeesTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		path := "/v1/apps/shop/machines/" + string(s.machine(t, "w1", "web", bourse.StateStarted).ID)
		replies := make(chan *httptest.ResponseRecorder)
		go func() { replies <- s.call(t, "GET", path+"/wait?state=stopped", "") }()
		synctest.Wait()
		s.call(t, "POST", path+"/stop", "")
		rec := <-replies
		if got := decodeBody[machinesapi.WaitReply](t, rec.Body.Bytes()); rec.Code != 200 || got.State != bourse.StateStopped {
			t.Errorf("status %d, %+v", rec.Code, got)
		}
	})
}

func TestWaitEndsWhenTheMachineIsDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		path := "/v1/apps/shop/machines/" + string(s.machine(t, "w1", "web", bourse.StateStopped).ID)
		replies := make(chan *httptest.ResponseRecorder)
		began := time.Now()
		go func() { replies <- s.call(t, "GET", path+"/wait?state=started", "") }()
		synctest.Wait()
		s.call(t, "DELETE", path, "")
		if rec := <-replies; rec.Code != http.StatusNotFound || time.Since(began) != 0 {
			t.Errorf("status %d after %s", rec.Code, time.Since(began))
		}
	})
}

func TestWaitAfterAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		m := s.machine(t, "w1", "web", bourse.StateStarted)
		path := "/v1/apps/shop/machines/" + string(m.ID)
		if rec := s.call(t, "GET", path+"/wait?timeout=1&from_event_id="+string(m.LastEvents[0].ID), ""); rec.Code != 408 {
			t.Errorf("the start before the event was counted: status %d", rec.Code)
		}
	})
}

// TestWaitOnALostWorkerIsUnavailable checks that, if a worker dies during a wait, the reply does not claim anything
// about the machine's state.
func TestWaitOnALostWorkerIsUnavailable(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	path := "/v1/apps/shop/machines/" + string(m.ID)
	s.call(t, "GET", path, "")
	s.workers["w1"].silence(errLost)
	if rec := s.call(t, "GET", path+"/wait?state=stopped", ""); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d: %s", rec.Code, rec.Body)
	}
}
