package broker

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/machinesapi"
)

// placeError returns the reply for an order that was not filled. It contains every refusal with its
// reason (invariant 10).
func placeError(order *bourse.Order, decision *bourse.Decision, err error) error {
	out := &endpoint.Reply{Err: err, Order: order.ID}
	switch code := bourse.CodeOf(err); {
	case code == bourse.CodeUnavailable, // the reply includes the refusals of the workers that did answer
		code == bourse.CodeNotFound, code == bourse.CodeInvalid, // an error in the image reference or the program
		code == bourse.CodeFailedPrecondition && order.Reservation != "": // the reservation has ended
		out.Refusals = decision.Refusals()
	}
	if bourse.CodeOf(err) != bourse.CodeInsufficient {
		return out
	}
	refusals := decision.Refusals()
	text := machinesapi.WithShortage(refusals, bourse.MessageOf(err))
	switch {
	case order.Kind() == bourse.KindVolume && len(refusals) > 0 && !slices.ContainsFunc(refusals, mayEncrypt):
		out.Err, out.Text = bourse.Errorf(bourse.CodeFailedPrecondition, "no worker there can encrypt volumes: use another region, or encrypted: false (flyctl volumes create --no-encryption)"), ""
	case order.Kind() == bourse.KindVolume:
		out = noVolumeRoom(err)
		out.Text = machinesapi.NoVolumeText + text
	case order.Pinned() != 0:
		out = pinnedError(order, refusals, err, text)
	case order.Kind() == bourse.KindTask:
		out.Text = text
	case !strings.HasPrefix(bourse.MessageOf(err), machinesapi.NoCapacityText):
		out.Text = machinesapi.NoCapacityText + text
	}
	out.Order, out.Refusals = order.ID, refusals
	return out
}

// mayEncrypt reports whether a worker may support encryption. It returns false if the worker's refusal says that the
// worker does not support it.
func mayEncrypt(r bourse.Refusal) bool { return r.Resource != bourse.LabelEncrypted }

// pinnedError is like placeError, but for a machine that can only run on its volume's worker, so trying another region
// would not help.
func pinnedError(order *bourse.Order, refusals []bourse.Refusal, err error, text string) *endpoint.Reply {
	for _, r := range refusals {
		if r.Reason == bourse.RefusedVolume {
			return &endpoint.Reply{Err: &bourse.Error{
				Code: bourse.CodeFailedPrecondition, Message: machinesapi.WithPrefix(bourse.CodeFailedPrecondition, r.Detail), Err: err,
			}}
		}
	}
	return &endpoint.Reply{
		Err: err, Status: http.StatusPreconditionFailed, Word: machinesapi.StatusVolumePlacement,
		Text: fmt.Sprintf(machinesapi.PinnedText, order.Config.Mounts[0].Volume) + text,
	}
}
