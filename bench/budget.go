package main

import "fmt"

// budget is what a figure has to keep: at most, or at least, so much.
type budget struct {
	limit   float64
	atLeast bool
}

var budgets = map[string]budget{
	"place_p50_ratio":       {limit: 2.2},
	"place_rps_ratio":       {limit: 0.6, atLeast: true},
	"overload_ratio":        {limit: 0.8, atLeast: true},
	"refuse_p99_ratio":      {limit: 4},
	"api_get_ratio":         {limit: 3},
	"api_list_ratio":        {limit: 4},
	"update_gap_ratio":      {limit: 1.2},
	"deploy_ratio":          {limit: 1.2},
	"deploy_same_100_ms":    {limit: 1000},
	"deploy_plan_1000_ms":   {limit: 1000},
	"wait_kib":              {limit: 64},
	"proxy_rps_ratio":       {limit: 0.8, atLeast: true},
	"proxy_p99_ratio":       {limit: 1.5},
	"cold_start_added_ms":   {limit: 2},
	"cold_start_added_p99":  {limit: 10},
	"failover_gap_ms":       {limit: 1000},
	"failover_failed":       {limit: 0},
	"standby_s":             {limit: 5},
	"websocket_kib":         {limit: 64},
	"fsm_c16_gain":          {limit: 5, atLeast: true},
	"rank_10k_ms":           {limit: 5},
	"recover_2000_s":        {limit: 1},
	"lost_worker_s":         {limit: 5},
	"ready_s":               {limit: 0.3},
	"anon_idle_mib":         {limit: 20},
	"anon_per_machine_kib":  {limit: 1024},
	"container_start_ratio": {limit: 1.15},
	"container_16_ratio":    {limit: 0.9, atLeast: true},
	"pull_shared_ratio":     {limit: 1.1},
	"volume_fork_ratio":     {limit: 0.7, atLeast: true},
	"nats_match_p50_ratio":  {limit: 5},
	"nats_match_c16_ratio":  {limit: 0.3, atLeast: true},
	"slots_lost_per_100k":   {limit: 0},
	"no_fit_ms":             {limit: 10},
	"view_p99_ms":           {limit: 1000},
	"view_unseen":           {limit: 0},
	"view_1000_p99_ms":      {limit: 5000},
	"view_bytes_ratio":      {limit: 1.3},
	"view_apply_rows_s":     {limit: 10_000, atLeast: true},
	"view_join_s":           {limit: 10},
	"query_p99_us":          {limit: 1000},
	"query_sql_p99_us":      {limit: 1000},
}

// verdict reports whether a figure keeps its budget; a floor has none.
func verdict(name string, v float64) string {
	b, ok := budgets[name]
	if !ok {
		return ""
	}
	sign, kept := "<=", v <= b.limit
	if b.atLeast {
		sign, kept = ">=", v >= b.limit
	}
	if kept {
		return fmt.Sprintf("ok   (%s %g)", sign, b.limit)
	}
	return fmt.Sprintf("MISS (%s %g)", sign, b.limit)
}
