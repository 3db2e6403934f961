// Package render writes the results of simulations: as text tables, as JSON and as CSV (report.go),
// as plots (PNG and SVG), and as one self-contained HTML page that needs no network (page.go).
//
// The caller fills a Report; this package does not change it. The output is a pure function of the
// Report, so the same simulation gives the same bytes.
package render
