package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/trace"
)

// BrokerOrders implements Orders by asking brokers to place the orders. The proxy itself does not need permission to
// place orders.
type BrokerOrders struct {
	Fabric  fabric.Fabric
	Members func() []bourse.Member
	ByTag   func(bourse.WorkerTag) (bourse.Member, bool) // returns the worker with the given tag
}

var _ Orders = BrokerOrders{}

const (
	maxBrokers       = 3        // maximum number of brokers to try for one order, one after the other
	maxFailoverReply = 64 << 10 // maximum size of a broker's reply, in bytes
)

// Order implements Orders. All proxies try the brokers in the same sequence. Order asks the next broker only if the
// previous one was unavailable and has not placed an order, so that at most one machine is created.
func (o BrokerOrders) Order(ctx context.Context, app string, like bourse.MachineID) (out fabric.FailoverOrder, err error) {
	err = bourse.Errorf(bourse.CodeUnavailable, "no broker is known")
	owner, _ := o.ByTag(like.Tag()) // if the worker is unknown, the broker replies not_found
	brokers := slices.DeleteFunc(o.Members(), func(m bourse.Member) bool { return m.Role != bourse.RoleBroker })
	sortBrokers(brokers, app, owner.Region)
	for _, to := range brokers[:min(len(brokers), maxBrokers)] {
		var reply fabric.FailoverReply
		if reply, err = o.ask(ctx, to, like); err == nil {
			return reply.FailoverOrder, nil
		}
		if out.Order = reply.Order; bourse.CodeOf(err) != bourse.CodeUnavailable || out.Order != "" {
			break
		}
	}
	return out, err
}

// sortBrokers sorts the brokers into the sequence in which a proxy tries them for an app's machine. Brokers in the
// machine's region come first. Within that region, and among the other brokers, a hash determines the sequence. The
// sequence is the same on every proxy, but differs from app to app.
func sortBrokers(brokers []bourse.Member, app string, region bourse.Region) {
	type rank struct {
		far  bool
		hash [sha256.Size]byte
	}
	ranks := make(map[bourse.WorkerID]rank, len(brokers))
	for _, b := range brokers {
		ranks[b.ID] = rank{b.Region != region, sha256.Sum256([]byte(app + "\x00" + string(b.ID)))}
	}
	slices.SortFunc(brokers, func(a, b bourse.Member) int {
		one, other := ranks[a.ID], ranks[b.ID]
		switch {
		case one.far == other.far:
			return bytes.Compare(one.hash[:], other.hash[:])
		case one.far:
			return 1
		}
		return -1
	})
}

func (o BrokerOrders) ask(ctx context.Context, to bourse.Member, like bourse.MachineID) (reply fabric.FailoverReply, err error) {
	h := http.Header{}
	trace.Into(ctx, h)
	resp, err := o.Fabric.Call(ctx, to, &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: fabric.FailoverPath, RawQuery: url.Values{"machine": {string(like)}}.Encode()},
		Header: h, Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	})
	if err != nil {
		return reply, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return reply, bourse.Errorf(bourse.CodeUnavailable, "broker %s does not accept orders from proxies (status %d)", to.ID, resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxFailoverReply)).Decode(&reply); err != nil {
		return reply, bourse.Errorf(bourse.CodeTimeout, "read reply from broker %s: %w", to.ID, err)
	}
	if reply.Code != "" {
		return reply, bourse.Errorf(reply.Code, "%s", reply.Message)
	}
	return reply, nil
}
