package worker

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
)

// claimStream is a claim of a task whose answer streams.
func (w *Worker) claimStream(ctx context.Context, c bourse.Claim, out *codec.Writer) error {
	if err := c.Order.Validate(); err != nil {
		return err
	}
	if c.Order.Kind() != bourse.KindTask {
		return bourse.Errorf(bourse.CodeInvalid, "the order is for no task: only a task's answer streams")
	}
	c.Order.Task.Output = func(part []byte) { _ = out.Write(fabric.ClaimPart{Output: part}) } // ctx ends for a caller that has left
	end := fabric.ClaimPart{}
	if reply, err := claimed(w.admit(ctx, &c)); err != nil {
		end.Failure = fabric.FailureOf(err)
	} else {
		end.Reply = &reply
	}
	_ = out.Write(end)
	return nil
}
