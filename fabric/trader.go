package fabric

import (
	"context"
	"errors"
	"io"

	"github.com/bourse-dev/bourse"
)

// Trader implements market.Trader on top of a Fabric.
type Trader struct{ Fabric }

// Claim asks one worker to fill the order, and returns the fill or the worker's refusal. An error with CodeUnavailable
// means that the worker has not received the claim. After any other error, the outcome is unknown, unless the worker
// itself reported the error.
func (t Trader) Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	var reply ClaimReply
	var err error
	if task := claim.Order.Task; task != nil && task.Output != nil {
		reply, err = t.stream(ctx, to, claim)
	} else {
		reply, err = OrderClaim.Call(ctx, t.Fabric, to, *claim)
	}
	if err == nil && (reply.Fill == nil) == (reply.Refusal == nil) {
		err = bourse.Errorf(bourse.CodeInternal, "worker %s answered a claim with neither a fill nor a refusal", to.ID)
	}
	if err != nil {
		return nil, nil, err
	}
	return reply.Fill, reply.Refusal, nil
}

// stream claims an order for a task and forwards the parts of the task's answer as they arrive.
func (t Trader) stream(ctx context.Context, to bourse.Member, claim *bourse.Claim) (reply ClaimReply, err error) {
	var end *ClaimPart
	err = OrderStream.Call(ctx, t.Fabric, to, *claim, func(p ClaimPart) error {
		if p.Reply != nil || p.Failure != nil {
			end = &p
			return io.EOF
		}
		claim.Order.Task.Output(p.Output)
		return nil
	})
	switch {
	case end == nil && err == nil:
		return reply, Lost(ctx, to, io.ErrUnexpectedEOF)
	case end == nil:
		return reply, err
	case end.Failure != nil:
		return reply, end.Failure.err(to)
	}
	return *end.Reply, nil
}

// Pullable asks a worker whether it can pull an image for an organization now. It returns
// the worker's refusal, or nil if the worker can pull the image or the answer is unknown.
func (t Trader) Pullable(ctx context.Context, to bourse.Member, org, image string) *bourse.Refusal {
	_, err := ImageResolve.Call(ctx, t.Fabric, to, ResolveRequest{Image: image, Org: org})
	if err == nil || errors.Is(err, ErrUnsent) {
		return nil
	}
	r := &bourse.Refusal{Worker: to.ID, Region: to.Region, Resource: image, Detail: bourse.MessageOf(err)}
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound:
		r.Reason = bourse.RefusedNoImage
	case bourse.CodeInvalid:
		r.Reason = bourse.RefusedImage
	case bourse.CodeUnavailable:
		r.Reason = bourse.RefusedRegistry
	default:
		return nil
	}
	return r
}

// Cancel undoes this worker's fill of the order, if there is one, and prevents it from filling the order later.
func (t Trader) Cancel(ctx context.Context, to bourse.Member, order bourse.OrderID) (bourse.Cancellation, error) {
	return OrderCancel.Call(ctx, t.Fabric, to, order)
}
