package main

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
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/trace"
	"github.com/bourse-dev/bourse/proxy"
)

// pathElsewhere is where brokers order machines for proxies. The machine that the
// new one is to be like is in the query.
const pathElsewhere = "/proxy/orders"

// elsewhereReply is what a broker answers; with a code nothing was ordered.
type elsewhereReply struct {
	fabric.FailoverOrder
	Code    bourse.Code `json:"code,omitempty"`
	Message string      `json:"message,omitempty"`
}

// ordersForProxies serves proxies.
func (s *server) ordersForProxies(order func(context.Context, bourse.MachineID) (fabric.FailoverOrder, error)) http.Handler {
	return direct.Handler(s.self.ID, admission.Require(s.tracer.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := order(r.Context(), bourse.MachineID(r.URL.Query().Get("machine")))
		reply := elsewhereReply{FailoverOrder: got}
		if err != nil {
			reply.Code, reply.Message = bourse.CodeOf(err), bourse.MessageOf(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(reply) // the proxy may have left
	})), bourse.RoleProxy))
}

// brokerOrders are orders as a proxy has them placed: by a broker, so that it needs no
// right to place any itself.
type brokerOrders struct{ *server }

var _ proxy.Orders = brokerOrders{}

// maxBrokers is how many brokers are asked, one after the other.
const maxBrokers = 3

// Order implements proxy.Orders. A second broker is asked only when the first has not
// seen the request, so that there is one machine; and all proxies ask the same one first.
func (o brokerOrders) Order(ctx context.Context, app string, like bourse.MachineID) (out fabric.FailoverOrder, err error) {
	err = bourse.Errorf(bourse.CodeUnavailable, "no broker is known")
	owner, _ := o.replica.directory.ByTag(like.Tag()) // else any broker says that it is not there
	brokers := slices.DeleteFunc(o.members(), func(m bourse.Member) bool { return m.Role != bourse.RoleBroker })
	sortFor(brokers, app, owner.Region)
	for _, to := range brokers[:min(len(brokers), maxBrokers)] {
		var reply elsewhereReply
		if reply, err = o.ask(ctx, to, like); err == nil {
			return reply.FailoverOrder, nil
		}
		if out.Order = reply.Order; bourse.CodeOf(err) != bourse.CodeUnavailable || out.Order != "" {
			break
		}
	}
	return out, err
}

// sortFor sorts brokers in the order in which they are asked for a machine of an app:
// those in the machine's region first, where it is ordered, and from there on by chance,
// which is the same at every proxy and another for every app.
func sortFor(brokers []bourse.Member, app string, region bourse.Region) {
	type rank struct {
		far  bool
		luck [sha256.Size]byte
	}
	ranks := make(map[bourse.WorkerID]rank, len(brokers))
	for _, b := range brokers {
		ranks[b.ID] = rank{b.Region != region, sha256.Sum256([]byte(app + "\x00" + string(b.ID)))}
	}
	slices.SortFunc(brokers, func(a, b bourse.Member) int {
		one, other := ranks[a.ID], ranks[b.ID]
		switch {
		case one.far == other.far:
			return bytes.Compare(one.luck[:], other.luck[:])
		case one.far:
			return 1
		}
		return -1
	})
}

// maxElsewhereReply bounds what a broker answers.
const maxElsewhereReply = 64 << 10

func (o brokerOrders) ask(ctx context.Context, to bourse.Member, like bourse.MachineID) (reply elsewhereReply, err error) {
	h := http.Header{}
	trace.Into(ctx, h)
	resp, err := o.fabric().Call(ctx, to, &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: pathElsewhere, RawQuery: url.Values{"machine": {string(like)}}.Encode()},
		Header: h, Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	})
	if err != nil {
		return reply, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return reply, bourse.Errorf(bourse.CodeUnavailable, "broker %s orders nothing for proxies (status %d)", to.ID, resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxElsewhereReply)).Decode(&reply); err != nil {
		return reply, bourse.Errorf(bourse.CodeTimeout, "the reply of broker %s cannot be read: %w", to.ID, err)
	}
	if reply.Code != "" {
		return reply, bourse.Errorf(reply.Code, "%s", reply.Message)
	}
	return reply, nil
}
