package fabric_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
)

// TestPullable checks that errors that a worker reports about an image become refusals with the text of a failed pull,
// and that an unreachable worker does not count as refusing.
func TestPullable(t *testing.T) {
	for code, want := range map[bourse.Code]bourse.RefusalReason{
		"": "", bourse.CodeNotFound: bourse.RefusedNoImage, bourse.CodeInvalid: bourse.RefusedImage, bourse.CodeUnavailable: bourse.RefusedRegistry,
		bourse.CodeRateLimited: "", bourse.CodeInternal: "",
	} {
		mux := http.NewServeMux()
		fabric.ImageResolve.Handle(mux, func(context.Context, fabric.ResolveRequest) (bourse.ImageRef, error) {
			if code == "" {
				return bourse.ImageRef{Digest: "sha256:a"}, nil
			}
			return bourse.ImageRef{}, bourse.Errorf(code, "the registry says so")
		})
		r := fabric.Trader{Fabric: fabrictest.Serving(mux)}.Pullable(t.Context(), w1, "acme", "nginx")
		if got := bourse.RefusalReason(""); r != nil {
			if got = r.Reason; got != want || r.Resource != "nginx" || r.Worker != w1.ID {
				t.Errorf("%s: %+v, want %s", code, r, want)
			}
		} else if want != "" {
			t.Errorf("%s: no refusal, want %s", code, want)
		}
	}
	if err := fabric.Unsent(w1, errors.New("connection refused")); !errors.Is(err, fabric.ErrUnsent) || bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("%v", err)
	}
}
