package fabric

import (
	"bytes"
	"context"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
)

// plainPlacements signs placements by encoding them.
type plainPlacements struct{}

func (plainPlacements) Sign(p bourse.Placement) ([]byte, error) { return codec.Marshal(&p) }

func (plainPlacements) Verify(signed []byte) (p bourse.Placement, err error) {
	return p, codec.Unmarshal(signed, &p)
}

// answering is a worker that answers everything with the same value, and records the latest
// claim.
type answering struct {
	reply func(*Message) any
}

func (a answering) Ask(_ context.Context, to []bourse.Member, _ *bourse.Order, answer func(bourse.Quote)) {
	for range to {
		answer(*a.reply(nil).(*bourse.Quote))
	}
}

func (a answering) Send(_ context.Context, _ bourse.Member, m *Message) (Answer, error) {
	body, err := codec.Marshal(a.reply(m))
	return Answer{Status: http.StatusOK, Body: body}, err
}

func (a answering) Call(_ context.Context, _ bourse.Member, req *http.Request) (*http.Response, error) {
	body, err := codec.Marshal(a.reply(nil))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: readCloser{bytes.NewReader(body)}, Request: req}, err
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

var placedWorker = bourse.Member{ID: "w1", Tag: 1, Region: "gru"}

func placedRecord(t *testing.T, worker bourse.WorkerID) bourse.Machine {
	t.Helper()
	order := bourse.Order{ID: bourse.NewOrderID(), App: bourse.App{Name: "shop", ID: "shop-id"}}
	signed, err := plainPlacements{}.Sign(order.Placement(worker))
	if err != nil {
		t.Fatal(err)
	}
	return bourse.Machine{ID: bourse.NewMachineID(placedWorker.Tag), App: "shop", AppID: "shop-id", Worker: "w1", Region: "gru", Order: order.ID, Placement: signed}
}

// TestRepliesWithoutPlacementAreNobodys checks that the app of a machine in a worker's reply is
// cleared unless the reply contains a placement of the machine's order in that app.
func TestRepliesWithoutPlacementAreNobodys(t *testing.T) {
	good, none, copied, other := placedRecord(t, "w1"), placedRecord(t, "w1"), placedRecord(t, "w2"), placedRecord(t, "w1")
	none.Placement = nil
	other.App = "blog"
	f := VerifyingFabric{answering{func(*Message) any { return &[]bourse.Machine{good, none, copied, other} }}, plainPlacements{}}
	list, err := MachineList.Call(t.Context(), f, placedWorker, MachinesQuery{})
	if err != nil || len(list) != 4 {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, want := range []bourse.AppName{"shop", "", "", ""} {
		if m := list[i]; m.App != want || (m.AppID == "") != (want == "") {
			t.Errorf("machine %d belongs to app %q %q, want %q", i, m.App, m.AppID, want)
		}
	}
}

// TestAFillNeedsItsPlacement checks that claims contain a placement and that fills must return
// it, so that a worker cannot answer an order with a machine that no broker has placed.
func TestAFillNeedsItsPlacement(t *testing.T) {
	record := placedRecord(t, "w1")
	order := bourse.Order{ID: record.Order, App: bourse.App{Name: "shop", ID: "shop-id"}}
	trader := func(answer func(*Message) any) PlacingTrader {
		return PlacingTrader{GrantingTrader{Trader: Trader{answering{answer}}}, plainPlacements{}}
	}
	var sent bourse.Claim
	fill, _, err := trader(func(m *Message) any {
		if err := codec.Unmarshal(m.Body, &sent); err != nil {
			t.Fatal(err)
		}
		filled := record
		filled.Placement = sent.Placement
		return &ClaimReply{Fill: &bourse.Fill{Machine: filled}}
	}).Claim(t.Context(), placedWorker, &bourse.Claim{Order: order})
	if err != nil || fill == nil || !bytes.Equal(fill.Machine.Placement, record.Placement) {
		t.Errorf("filled with %+v, %v", fill, err)
	}
	lie := record
	lie.Placement = nil
	_, _, err = trader(func(*Message) any { return &ClaimReply{Fill: &bourse.Fill{Machine: lie}} }).Claim(t.Context(), placedWorker, &bourse.Claim{Order: order})
	if bourse.CodeOf(err) != bourse.CodeInternal {
		t.Errorf("a fill without a placement: %v", err)
	}
	for _, x := range []struct {
		filled   bourse.Machine
		believed bool
	}{{record, true}, {lie, false}} {
		trader(func(*Message) any { return &bourse.Quote{Worker: "w1", Region: "gru", Filled: &x.filled} }).
			Ask(t.Context(), []bourse.Member{placedWorker}, &order, func(q bourse.Quote) {
				if (q.Filled != nil) != x.believed || (q.Refusal == nil) != x.believed {
					t.Errorf("placement of %d bytes: quote %+v", len(x.filled.Placement), q)
				}
			})
	}
}
