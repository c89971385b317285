"""Boosted trees of XGBoost and LightGBM, evaluated with numpy."""
