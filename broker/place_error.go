package broker

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// placeError gives an order's bad end to the caller. Whoever refused is named
// with the reason (invariant 10).
func placeError(order *bourse.Order, decision *bourse.Decision, err error) error {
	out := &reply{err: err, order: order.ID}
	switch code := bourse.CodeOf(err); {
	case code == bourse.CodeUnavailable, // who answered is as good to know as who did not
		code == bourse.CodeFailedPrecondition && order.Reservation != "": // it is gone
		out.refusals = decision.Refusals()
	}
	if bourse.CodeOf(err) != bourse.CodeInsufficient {
		return out
	}
	refusals := decision.Refusals()
	text := shortage(refusals) + bourse.MessageOf(err)
	switch {
	case order.Kind() == bourse.KindVolume:
		out = noVolumeRoom(err)
		out.text = machinesapi.NoVolumeText + text
	case order.Pinned() != 0:
		out = pinnedError(order, refusals, err, text)
	case order.Kind() == bourse.KindTask:
		out.text = text
	case !strings.HasPrefix(bourse.MessageOf(err), machinesapi.NoCapacityText):
		out.text = machinesapi.NoCapacityText + text
	}
	out.order, out.refusals = order.ID, refusals
	return out
}

// pinnedError is placeError for a machine that can only be where its volume is:
// no other region helps.
func pinnedError(order *bourse.Order, refusals []bourse.Refusal, err error, text string) *reply {
	for _, r := range refusals {
		if r.Reason == bourse.RefusedVolume {
			return &reply{err: &bourse.Error{
				Code: bourse.CodeFailedPrecondition, Message: machinesapi.WithPrefix(bourse.CodeFailedPrecondition, r.Detail), Err: err,
			}}
		}
	}
	return &reply{
		err: err, status: http.StatusPreconditionFailed, word: machinesapi.StatusVolumePlacement,
		text: fmt.Sprintf(machinesapi.PinnedText, order.Config.Mounts[0].Volume) + text,
	}
}

// shortage says in the Machines API's phrase what most workers lack, for
// clients that look for it.
func shortage(refusals []bourse.Refusal) string {
	counts := map[string]int{}
	most := ""
	for _, r := range refusals {
		if r.Reason != bourse.RefusedResource {
			continue
		}
		counts[r.Resource]++
		if n := counts[r.Resource]; most == "" || n > counts[most] {
			most = r.Resource
		}
	}
	switch most {
	case "":
		return ""
	case string(bourse.ResourceCPU):
		most = "CPUs"
	}
	return "insufficient " + most + " available to fulfill request; "
}
