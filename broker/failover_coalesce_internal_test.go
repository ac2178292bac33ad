package broker

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// want returns an order with a new ID for machines of an image.
func want(image string) *bourse.Order {
	return &bourse.Order{
		ID: bourse.NewOrderID(), App: bourse.App{ID: "a"}, Regions: []bourse.Choice{{"gru"}}, Config: bourse.Config{Image: image},
	}
}

// TestCoalescer checks that equivalent concurrent orders are combined, and that an order that arrives shortly after an
// equivalent order was filled receives the same machine.
func TestCoalescer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all coalescer
		placed := 0
		ask := func(image string) fabric.FailoverOrder {
			o := want(image)
			got, err := all.do(t.Context(), o, func(context.Context) (fabric.FailoverOrder, error) {
				placed++
				time.Sleep(time.Second)
				return fabric.FailoverOrder{Order: o.ID, Machine: bourse.NewMachineID(1)}, nil
			})
			if err != nil {
				t.Error(err)
			}
			return got
		}
		var got [10]fabric.FailoverOrder
		var asking sync.WaitGroup
		for i := range got {
			asking.Go(func() { got[i] = ask("x") })
		}
		asking.Wait()
		for _, one := range got {
			if one != got[0] || placed != 1 {
				t.Fatalf("%+v and %+v of %d orders", one, got[0], placed)
			}
		}
		if again := ask("x"); again != got[0] {
			t.Errorf("a moment later: %+v, want %+v", again, got[0])
		}
		if other := ask("y"); other.Machine == got[0].Machine {
			t.Error("an order with another config was combined")
		}
		time.Sleep(reuseFor)
		if later := ask("x"); later.Machine == got[0].Machine || len(all.orders) != 1 || placed != 3 {
			t.Errorf("much later: %+v, %d orders placed, of which %d are reused", later, placed, len(all.orders))
		}
	})
}

// TestCoalescerUntilAllDisconnect checks that an order continues when its first caller disconnects,
// and is canceled when the last one does. A canceled or refused order is not reused.
func TestCoalescerUntilAllDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all coalescer
		var left error
		wait := func(ctx context.Context) (fabric.FailoverOrder, error) {
			<-ctx.Done()
			left = context.Cause(ctx)
			return fabric.FailoverOrder{Order: "1"}, bourse.Errorf(bourse.CodeCanceled, "all have left")
		}
		first, leave := context.WithCancel(t.Context())
		second, leaveToo := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{first, second} {
			go func() {
				if got, err := all.do(ctx, want("x"), wait); bourse.CodeOf(err) != bourse.CodeCanceled {
					t.Errorf("%+v, %v, want canceled", got, err)
				}
			}()
			synctest.Wait()
		}
		leave()
		synctest.Wait()
		if left != nil {
			t.Error("the order was canceled while a caller was waiting")
		}
		leaveToo()
		synctest.Wait()
		if left == nil || len(all.orders) != 0 || all.placing != 0 {
			t.Errorf("the order was not canceled: %v; %+v", left, &all.orders)
		}
		n := 0
		refuse := func(context.Context) (fabric.FailoverOrder, error) {
			n++
			return fabric.FailoverOrder{Order: "1"}, bourse.Errorf(bourse.CodeInsufficient, "no")
		}
		for range 2 {
			if got, err := all.do(t.Context(), want("x"), refuse); bourse.CodeOf(err) != bourse.CodeInsufficient || got.Order != "1" {
				t.Errorf("refused: %+v, %v", got, err)
			}
		}
		if n != 2 {
			t.Errorf("%d orders, want a refusal not to be reused", n)
		}
	})
}

// TestCoalescerIsLimited checks that the number of callers and the number of orders in progress are limited.
func TestCoalescerIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all coalescer
		for range maxCallers {
			if err := all.enter(); err != nil {
				t.Fatal(err)
			}
		}
		if err := all.enter(); bourse.CodeOf(err) != bourse.CodeRateLimited {
			t.Errorf("a caller beyond the limit: %v", err)
		}
		all.leave()
		if err := all.enter(); err != nil {
			t.Error(err)
		}
		end := make(chan struct{})
		wait := func(ctx context.Context) (fabric.FailoverOrder, error) {
			<-end
			return fabric.FailoverOrder{Order: "1"}, context.Cause(ctx)
		}
		for i := range maxPlacing {
			go func() { _, _ = all.do(t.Context(), want(string(rune('A'+i))), wait) }()
		}
		synctest.Wait()
		if _, err := all.do(t.Context(), want("one more"), wait); bourse.CodeOf(err) != bourse.CodeRateLimited {
			t.Errorf("an order beyond the limit: %v", err)
		}
		close(end)
	})
}
