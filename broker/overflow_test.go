package broker_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/fabric"
)

// long is a fabric in which worker w1 cannot list its machines: the call fails with err.
type long struct {
	fabric.Fabric
	err error
}

func (l long) Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	if to.ID == "w1" && req.URL.Path == fabric.MachineList.Path() {
		return nil, l.err
	}
	return l.Fabric.Call(ctx, to, req)
}

// TestListOverflows checks that a list fails, instead of being incomplete, if a worker's reply is too large.
func TestListOverflows(t *testing.T) {
	for name, err := range map[string]error{
		"for the worker":                 bourse.Errorf(bourse.CodeInvalid, "the reply is too long"),
		"by the reader":                  bourse.Errorf(bourse.CodeInternal, "worker w1: %w", fabric.ErrOverflow),
		"another worker does not answer": bourse.Errorf(bourse.CodeTimeout, "no answer"),
	} {
		s := startOn(t, three(), func(c *broker.Config) { c.Workers = long{c.Workers, err} })
		rec := s.call(t, "GET", createPath+"?include_deleted=true", "")
		if failed := rec.Code != http.StatusOK; failed != (bourse.CodeOf(err) != bourse.CodeTimeout) {
			t.Errorf("%s: status %d: %s", name, rec.Code, rec.Body)
		}
	}
}
