package render

import "github.com/hdmlp/hdmlp/internal/study/drawing"

// Figures returns the plots of a report.
func Figures(r *Report) []*drawing.Figure { return (&plotted{r}).figures() }

// Summary returns the sentences at the head of a report's page.
func Summary(r *Report) []string { return (&plotted{r}).summary() }
