package policy

import "math"

// Homography returns the numbers of PIL's PERSPECTIVE which map four points to others, in float32:
// those of torchvision's _get_perspective_coeffs, which solves the same equations in float64. sure
// is false where the last bits of that decide how a number is rounded.
func Homography(from, to [4][2]float64) (m [8]float64, sure bool) {
	var rows [8][9]float64
	for i := range from {
		x, y := from[i][0], from[i][1]
		u, v := to[i][0], to[i][1]
		rows[2*i] = [9]float64{x, y, 1, 0, 0, 0, -u * x, -u * y, u}
		rows[2*i+1] = [9]float64{0, 0, 0, x, y, 1, -v * x, -v * y, v}
	}
	m, sure = solve(&rows)
	for i, x := range m {
		const error = 1e-10 // relative, a thousand times that of either solution
		low, high := float32(x*(1-error)), float32(x*(1+error))
		sure = sure && low == high && math.Abs(x) > 1e-12
		m[i] = float64(float32(x))
	}
	return m, sure
}

// solve solves linear equations by elimination with pivots. unique is false if they have no unique
// solution.
func solve(rows *[8][9]float64) (x [8]float64, unique bool) {
	const n = len(rows)
	for i := range n {
		pivot := i
		for r := i + 1; r < n; r++ {
			if math.Abs(rows[r][i]) > math.Abs(rows[pivot][i]) {
				pivot = r
			}
		}
		rows[i], rows[pivot] = rows[pivot], rows[i]
		if math.Abs(rows[i][i]) < 1e-9 {
			return x, false
		}
		for r := i + 1; r < n; r++ {
			f := rows[r][i] / rows[i][i]
			for c := i; c <= n; c++ {
				rows[r][c] -= f * rows[i][c]
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		sum := rows[i][n]
		for c := i + 1; c < n; c++ {
			sum -= rows[i][c] * x[c]
		}
		x[i] = sum / rows[i][i]
	}
	return x, true
}
