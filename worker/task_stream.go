package worker

import (
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// handleClaimStream is a claim of a task whose answer streams.
func (w *Worker) handleClaimStream(rw http.ResponseWriter, r *http.Request) {
	var c bourse.Claim
	err := fabric.ReadBody(rw, r, &c)
	if err == nil {
		err = c.Order.Validate()
	}
	if err == nil && c.Order.Kind() != bourse.KindTask {
		err = bourse.Errorf(bourse.CodeInvalid, "the order is for no task: only a task's answer streams")
	}
	if err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	out := newStream(rw, true)
	c.Order.Task.Output = func(part []byte) { _ = out.write(fabric.ClaimPart{Output: part}) } // who has left is seen by ctx
	fill, refusal, err := w.admit(r.Context(), &c)
	if err != nil {
		_ = out.write(fabric.ClaimPart{Failure: fabric.FailureOf(err)})
		return
	}
	_ = out.write(fabric.ClaimPart{Reply: &fabric.ClaimReply{Fill: fill, Refusal: refusal}})
}
