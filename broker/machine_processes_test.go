package broker_test

import (
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestProcesses(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	path := "/v1/apps/shop/machines/" + string(m.ID) + "/ps"
	for query, want := range map[string]int64{"": 1, "?sort_by=pid&order=desc": 7, "?sort_by=rss": 7, "?sort_by=command&order=asc": 7, "?order=desc": 7} {
		list := decodeBody[[]bourse.Process](t, s.call(t, "GET", path+query, "").Body.Bytes())
		if len(list) != 2 || list[0].PID != want {
			t.Errorf("%s: %+v, want process %d first", query, list, want)
		}
	}
	for query, want := range map[string]int{"?sort_by=color": 400, "?order=up": 400} {
		if rec := s.call(t, "GET", path+query, ""); rec.Code != want {
			t.Errorf("%s: status %d, want %d: %s", query, rec.Code, want, rec.Body)
		}
	}
	if rec := s.call(t, "GET", "/v1/apps/other/machines/"+string(m.ID)+"/ps", ""); rec.Code != 404 {
		t.Errorf("of another app: status %d: %s", rec.Code, rec.Body)
	}
}
