package tenant

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Placements serves the endpoint that simulates placements.
type Placements struct {
	Gate      *endpoint.Gate
	Directory lookup.Directory
	Workers   fabric.Fabric
	Region    bourse.Region // the broker's region
	Timeout   time.Duration // time limit for quotes
}

// Routes returns the handler's routes.
func (h *Placements) Routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("POST /v1/platform/placements", endpoint.Token, h.Gate.Ordering(endpoint.MachineLease, h.place)).Reads(machinesapi.PlacementRequest{}).Writes(machinesapi.PlacementList{}),
	}
}

// maxCount is the maximum number of simulated machines.
const maxCount = 1 << 20

func (h *Placements) place(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.PlacementRequest
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	if in.Org == "" {
		return bourse.Errorf(bourse.CodeInvalid, "org_slug is required")
	}
	if !r.Who.May(bourse.App{Org: in.Org}) {
		return endpoint.ErrForbidden()
	}
	if in.Count > maxCount || in.VolumeBytes > math.MaxInt64 {
		return bourse.Errorf(bourse.CodeInvalid, "invalid count %d: use up to %d", in.Count, maxCount)
	}
	choices, err := h.choices(in.Region)
	if err != nil {
		return err
	}
	order, err := simulated(&in, choices)
	if err != nil {
		return err
	}
	fits := h.ask(r.Context(), &order, diskOf(in.VolumeBytes))
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.PlacementList{Regions: distribute(choices, fits, int64(in.Count))})
}

// choices resolves a region expression. If the expression is empty, the first choice is the broker's own region, if
// it has workers, and the second is any region.
func (h *Placements) choices(expression string) ([]bourse.Choice, error) {
	known := h.Directory.Regions()
	if len(known) == 0 {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "no workers are known")
	}
	if expression == "" {
		expression = "any"
		if slices.Contains(known, h.Region) {
			expression = string(h.Region) + ",any"
		}
	}
	return bourse.ParseRegions(expression, known)
}

// simulated returns an order that reserves capacity for a machine of the requested size, whatever its image. The order
// is used only to request quotes.
func simulated(in *machinesapi.PlacementRequest, choices []bourse.Choice) (bourse.Order, error) {
	config := bourse.Config{Guest: in.Compute}
	if in.Compute == nil {
		config.Size = "performance-1x"
	}
	if err := config.NormalizeHeld(); err != nil {
		return bourse.Order{}, err
	}
	key := bourse.NewReservationKey()
	order := bourse.Order{
		ID: key.Order(0), App: bourse.App{Name: bourse.DefaultAppName, Org: in.Org}, Regions: choices, Config: config,
		Hold: &bourse.HoldOrder{Reservation: key, TTL: bourse.Duration(bourse.MinHold)},
	}
	return order, order.Validate()
}

func diskOf(bytes uint64) int64 {
	const mib = 1 << 20
	return int64(bytes/mib) + int64(min(1, bytes%mib))
}

// ask returns, for each region, how many machines fit on each worker. Workers that do not answer are omitted.
func (h *Placements) ask(ctx context.Context, order *bourse.Order, disk int64) map[bourse.Region][]int64 {
	region := map[bourse.WorkerID]bourse.Region{}
	var members []bourse.Member
	for _, m := range h.Directory.Workers() {
		if slices.ContainsFunc(order.Regions, func(c bourse.Choice) bool { return slices.Contains(c, m.Region) }) {
			members = append(members, m)
			region[m.ID] = m.Region
		}
	}
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	var mu sync.Mutex
	out := map[bourse.Region][]int64{}
	h.Workers.Ask(ctx, members, order, func(q bourse.Quote) {
		mu.Lock()
		defer mu.Unlock()
		at, asked := region[q.Worker]
		delete(region, q.Worker) // count each worker only once
		if n := machinesThatFit(&q, disk); asked && n > 0 {
			out[at] = append(out[at], n)
		}
	})
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(out) // return a copy, because a late answer may still change out
}

// machinesThatFit returns how many machines fit on a worker, according to its quote for one
// machine. disk is the size, in MiB, of the volume that each machine also needs.
func machinesThatFit(q *bourse.Quote, disk int64) int64 {
	if q.Refusal != nil {
		return 0
	}
	n := int64(maxCount)
	for _, a := range q.Accounts {
		takes := q.Takes.Of(a.Resource)
		if a.Resource == bourse.ResourceDisk {
			takes += disk
		}
		if takes > 0 {
			n = min(n, a.Free()/takes)
		}
	}
	return n
}

// distribute assigns count machines to regions, in the order of the choices. Within a choice, the region with the most
// capacity comes first. If count is 0, each region gets as many machines as fit.
func distribute(choices []bourse.Choice, fits map[bourse.Region][]int64, count int64) []machinesapi.RegionPlacement {
	out := []machinesapi.RegionPlacement{}
	left, seen := count, map[bourse.Region]bool{}
	for _, choice := range choices {
		regions := slices.Clone(choice)
		slices.SortStableFunc(regions, func(a, b bourse.Region) int { return cmp.Compare(total(fits[b]), total(fits[a])) })
		for _, region := range regions {
			n := total(fits[region])
			if count > 0 {
				n = min(n, left)
			}
			if n == 0 || seen[region] {
				continue
			}
			seen[region], left = true, left-n
			out = append(out, machinesapi.RegionPlacement{Region: region, Count: n, Concurrency: min(n, int64(len(fits[region])))})
		}
	}
	return out
}

func total(list []int64) (sum int64) {
	for _, n := range list {
		sum += n
	}
	return sum
}
