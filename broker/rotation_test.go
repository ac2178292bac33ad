package broker_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestRotate(t *testing.T) {
	var starts []bool
	s := start(t, func(c *broker.Config) {
		c.Rotate = func(_ context.Context, key machinesapi.SharedKey, in machinesapi.Rotate) (machinesapi.Rotation, error) {
			if key != machinesapi.KeyGossip {
				t.Errorf("key %s", key)
			}
			starts = append(starts, in.Start)
			return machinesapi.Rotation{Step: machinesapi.RotationAdd, Servers: []machinesapi.RotationServer{{ID: "w1", Role: bourse.RoleWorker}}}, nil
		}
	})
	for _, begin := range []bool{true, false} {
		out, err := s.client(t).Operator().Rotate(t.Context(), machinesapi.KeyGossip, machinesapi.Rotate{Start: begin})
		if err != nil || out.Step != machinesapi.RotationAdd || out.Done || len(out.Servers) != 1 || out.Servers[0].OK {
			t.Errorf("start %v: %+v, %v", begin, out, err)
		}
	}
	if len(starts) != 2 || !starts[0] || starts[1] {
		t.Errorf("start was %v, want true, then false", starts)
	}
	if rec := s.call(t, "POST", "/v1/keys/tokens/rotation", `{}`); rec.Code != http.StatusNotFound {
		t.Errorf("a key that cannot be rotated: %d", rec.Code)
	}
	if rec := start(t).call(t, "POST", "/v1/keys/gossip/rotation", `{}`); rec.Code != http.StatusPreconditionFailed {
		t.Errorf("without certificates: %d %s", rec.Code, rec.Body)
	}
}
