-- Delays per carrier; late is more than 15 minutes after schedule.
SELECT carrier,
       count(*)                                                AS flights,
       round(avg(dep_delay), 1)                                AS mean_departure_delay_min,
       round(avg(arr_delay), 1)                                AS mean_arrival_delay_min,
       round(100 * avg(CASE WHEN arr_delay > 15 THEN 1.0D ELSE 0.0D END), 1) AS late_percent,
       sum(CASE WHEN dep_delay IS NULL THEN 1 ELSE 0 END)      AS cancelled
FROM flights
GROUP BY carrier
ORDER BY flights DESC, carrier
