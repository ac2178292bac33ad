package broker_test

import (
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

func TestProcesses(t *testing.T) {
	s := start(t)
	handle(s.workers["w1"], &fabric.MachineProcesses, func(bourse.MachineID) ([]bourse.Process, error) {
		return []bourse.Process{{PID: 1, Command: "web", RSS: 4096, Listens: []bourse.ListenSocket{{Proto: "tcp", Address: "[::]:80"}}}, {PID: 7, Command: "a", Listens: []bourse.ListenSocket{}}}, nil
	})
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
