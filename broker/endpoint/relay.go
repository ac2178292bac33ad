package endpoint

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Limits for relaying metrics.
const (
	relayTime  = 10 * time.Second // Prometheus' default timeout
	relayBytes = 32 << 20         // limit on the metrics of one server; each machine adds about 500 bytes
)

// ProxyMetricsPath is the path of a proxy's metrics endpoint, which brokers and scrapers read.
const ProxyMetricsPath = "/proxy/metrics"

// Relay responds with the metrics of a worker or a proxy. The response's content type is always plain text, regardless
// of the type that the server declares. Errors before the first byte is sent are those of [fabric.Pipe]. A later error
// means that the response is incomplete.
func Relay(w http.ResponseWriter, r *http.Request, servers fabric.Fabric, from bourse.Member) error {
	ctx, cancel := context.WithTimeout(r.Context(), relayTime)
	defer cancel()
	in, err := open(ctx, servers, from)
	if err != nil {
		return err
	}
	defer in.Close()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	n, err := io.Copy(w, io.LimitReader(in, relayBytes+1))
	if err == nil && n > relayBytes {
		err = bourse.Errorf(bourse.CodeInvalid, "the metrics of %s %s exceed %d bytes", from.Role, from.ID, relayBytes)
	}
	return err
}

func open(ctx context.Context, servers fabric.Fabric, from bourse.Member) (io.ReadCloser, error) {
	if from.Role != bourse.RoleProxy {
		return fabric.WorkerMetrics.Open(ctx, servers, from, struct{}{}, nil)
	}
	resp, err := servers.Call(ctx, from, &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: ProxyMetricsPath}, Header: http.Header{}, Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	})
	if err != nil {
		return nil, &bourse.Error{Code: bourse.CodeUnavailable, Message: "proxy " + string(from.ID) + " did not answer", Err: err}
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, bourse.Errorf(bourse.CodeUnavailable, "proxy %s does not report its metrics (status %d)", from.ID, resp.StatusCode)
	}
	return resp.Body, nil
}

// Target describes a worker or a proxy in the format of Prometheus' HTTP service discovery.
type Target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// Targets returns the workers and proxies as scrape targets. Prometheus scrapes them through this broker. host is the
// address at which the client reached the broker. Absent workers are included, so that Prometheus reports them as down.
// Proxies are included only while they are members.
func Targets(host string, workers []bourse.Member, absent []bourse.Absence, proxies []bourse.Member) []Target {
	out := make([]Target, 0, len(workers)+len(absent)+len(proxies))
	add := func(noun string, m *bourse.Member) {
		out = append(out, Target{[]string{host}, map[string]string{
			"__metrics_path__": "/v1/" + noun + "/" + string(m.ID) + "/metrics", "instance": string(m.ID), "region": string(m.Region),
		}})
	}
	for i := range workers {
		add("workers", &workers[i])
	}
	for i := range absent {
		add("workers", &absent[i].Member)
	}
	for i := range proxies {
		add("proxies", &proxies[i])
	}
	slices.SortFunc(out, func(a, b Target) int { return cmp.Compare(a.Labels["instance"], b.Labels["instance"]) })
	return out
}
